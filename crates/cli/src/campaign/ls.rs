//! `onward campaign ls`: lists campaign runs.

use std::process::ExitCode;

use onward_api::campaign::{
    CampaignControl, CampaignRunSummary, CampaignStatus, ListCampaignRunsQuery,
};

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::paging::{ListOutputArgs, ListPage, PAGE_SIZE};

/// List campaign runs, newest first
///
/// Exit codes: 0 the runs were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct CampaignListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Only runs of this campaign
    #[arg(long)]
    campaign: Option<String>,
    /// Only runs with this status; paused and cancelled select by what an operator requested,
    /// whatever the run's progress
    #[arg(long, value_parser = ["queued", "running", "completed", "partial", "failed", "paused", "cancelled"])]
    status: Option<String>,
    #[command(flatten)]
    list: ListOutputArgs,
}

pub(crate) async fn list_campaign_runs(args: &CampaignListArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let control = match args.status.as_deref() {
        Some("paused") => Some(CampaignControl::Paused),
        Some("cancelled") => Some(CampaignControl::Cancelled),
        _ => None,
    };
    let status = args.status.as_ref().filter(|_| control.is_none());
    let status: Option<CampaignStatus> = status
        .map(|status| serde_json::from_value(status.as_str().into()))
        .transpose()?;
    let query = ListCampaignRunsQuery {
        campaign: args.campaign.clone(),
        status,
        ..ListCampaignRunsQuery::default()
    };
    let heading = format!(
        "{:<36}  {:<24}  {:<7}  {:<20}  {:>9}  deployed",
        "run", "campaign", "channel", "status", "items"
    );
    let page = async |limit, after| {
        // The filter below may leave few runs of a page, so full pages are requested.
        let limit = if control.is_some() { PAGE_SIZE } else { limit };
        let mut page = onward
            .list_campaign_runs(ListCampaignRunsQuery {
                limit: Some(limit),
                after,
                ..query.clone()
            })
            .await?;
        page.runs
            .retain(|run| control.is_none_or(|control| matches_control(run, control)));
        Ok(ListPage {
            items: page.runs,
            next: page.next,
        })
    };
    args.list
        .print_pages(&heading, format_run_row, page)
        .await?;
    Ok(ExitCode::SUCCESS)
}

/// Whether an operator has put the run into this control state. A run that has ended does not count
/// as paused.
fn matches_control(summary: &CampaignRunSummary, control: CampaignControl) -> bool {
    summary.control == control
        && !(control == CampaignControl::Paused && summary.status.is_terminal())
}

fn format_run_row(summary: &CampaignRunSummary) -> String {
    let CampaignRunSummary {
        run,
        campaign,
        channel,
        items,
        created_at,
        ..
    } = summary;
    let (channel, status) = (channel.as_str(), status_label(summary));
    format!(
        "{run:<36}  {:<24}  {channel:<7}  {status:<20}  {items:>9}  {created_at}",
        console::escape_control_chars(campaign)
    )
}

/// Status of a run that has ended; before that, `paused` or `cancelling` where an operator
/// requested it.
pub(super) fn status_label(summary: &CampaignRunSummary) -> String {
    let status = summary.status.as_str();
    match (summary.status.is_terminal(), summary.control) {
        (true, CampaignControl::Cancelled) => format!("{status}, cancelled"),
        (true, _) | (false, CampaignControl::Active) => status.to_owned(),
        (false, CampaignControl::Paused) => "paused".to_owned(),
        (false, CampaignControl::Cancelled) => "cancelling".to_owned(),
    }
}
