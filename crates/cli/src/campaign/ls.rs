//! `onward campaign ls`: campaign runs.

use std::process::ExitCode;

use onward_api::campaign::{CampaignListing, CampaignSummary, Control, RunStatus};

use crate::access::{Want, WorkArgs};
use crate::pages::{ListArgs, PAGE, Page};
use crate::paint;

/// List campaign runs, the last that was deployed first
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// Only runs of this campaign
    #[arg(long)]
    campaign: Option<String>,
    /// Only runs in this status; paused and cancelled are what people want of a run, whatever it has come to
    #[arg(long, value_parser = ["queued", "running", "completed", "partial", "failed", "paused", "cancelled"])]
    status: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let control = match args.status.as_deref() {
        Some("paused") => Some(Control::Paused),
        Some("cancelled") => Some(Control::Cancelled),
        _ => None,
    };
    let status = args.status.as_ref().filter(|_| control.is_none());
    let status: Option<RunStatus> = status.map(|status| serde_json::from_value(status.as_str().into())).transpose()?;
    let asked = CampaignListing { campaign: args.campaign.clone(), status, ..CampaignListing::default() };
    let heading =
        format!("{:<36}  {:<24}  {:<7}  {:<20}  {:>9}  deployed", "run", "campaign", "channel", "status", "items");
    let page = async |limit, after| {
        // Of those that are wanted there may be few.
        let limit = if control.is_some() { PAGE } else { limit };
        let mut page = onward.campaign_runs(CampaignListing { limit: Some(limit), after, ..asked.clone() }).await?;
        page.runs.retain(|run| control.is_none_or(|control| is_wanted(run, control)));
        Ok(Page { items: page.runs, next: page.next })
    };
    args.list.print(&heading, line, page).await?;
    Ok(ExitCode::SUCCESS)
}

/// Whether people want this of a run. One that is over is paused no longer.
fn is_wanted(summary: &CampaignSummary, control: Control) -> bool {
    summary.control == control && !(control == Control::Paused && summary.status.is_over())
}

fn line(summary: &CampaignSummary) -> String {
    let CampaignSummary { run, campaign, channel, items, created_at, .. } = summary;
    let (channel, status) = (channel.as_str(), status(summary));
    format!("{run:<36}  {:<24}  {channel:<7}  {status:<20}  {items:>9}  {created_at}", paint::plain(campaign))
}

/// What a run has come to, or what people want of it while it is not over.
pub(super) fn status(summary: &CampaignSummary) -> String {
    let status = summary.status.as_str();
    match (summary.status.is_over(), summary.control) {
        (true, Control::Cancelled) => format!("{status}, cancelled"),
        (true, _) | (false, Control::Active) => status.to_owned(),
        (false, Control::Paused) => "paused".to_owned(),
        (false, Control::Cancelled) => "cancelling".to_owned(),
    }
}
