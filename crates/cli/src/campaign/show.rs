//! `onward campaign show`: a campaign run, how many were reached, and what happened to it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::campaign::{AuditEntry, AuditListing, CampaignRun, CampaignSummary, CampaignTally, UnderWay};
use serde::Serialize;

use super::{RunArg, ls};
use crate::access::{Access, Want, WorkArgs};
use crate::paint;

/// Show a campaign run: what it is, how many were reached, and its audit trail
///
/// Exit codes: 0 it was shown, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArg,
    /// Entries of the audit trail that are shown: the last ones
    #[arg(long, default_value_t = 20, value_name = "N")]
    entries: usize,
    /// Print one JSON object, with the whole audit trail
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    run: &'a CampaignRun,
    audit: &'a [AuditEntry],
}

/// Entries that are asked for at a time.
const PAGE: u32 = 1_000;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let run = onward.campaign_run(&args.run.run).await?;
    let audit = audit(&onward, &run.summary.run).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&Told { run: &run, audit: &audit })?)?;
    } else {
        let skipped = audit.len().saturating_sub(args.entries);
        print(&run, skipped, &audit[skipped..])?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn audit(onward: &Access, run: &str) -> anyhow::Result<Vec<AuditEntry>> {
    let (mut entries, mut after) = (Vec::new(), None);
    loop {
        let page = onward.campaign_audit(run, AuditListing { after, limit: Some(PAGE) }).await?;
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

fn print(run: &CampaignRun, skipped: usize, audit: &[AuditEntry]) -> io::Result<()> {
    let CampaignSummary { run: id, campaign, channel, items, jobs, scheduled_for, created_at, .. } = &run.summary;
    let CampaignTally { served, failed, skipped: left_out, in_doubt, waiting } = run.tally;
    let mut out = anstream::stdout().lock();
    writeln!(out, "run        {id}\ncampaign   {}", paint::plain(campaign))?;
    writeln!(out, "channel    {} by {}", channel.as_str(), paint::plain(&run.provider))?;
    writeln!(out, "status     {}", ls::status(&run.summary))?;
    writeln!(out, "deployed   {created_at}\nscheduled  {scheduled_for}")?;
    if let Some(ended) = &run.summary.ended_at {
        writeln!(out, "ended      {ended}")?;
    }
    if let Some(first) = &run.summary.retry_of {
        writeln!(out, "retry of   {first}")?;
    }
    if let Some(next) = &run.retried_by {
        writeln!(out, "retried by {next}")?;
    }
    let jobs = paint::counted((*jobs).into(), "job");
    writeln!(
        out,
        "items      {items} in {jobs}: {served} served, {failed} failed, {left_out} skipped, {in_doubt} in doubt, {waiting} waiting"
    )?;
    if let Some(UnderWay { jobs, until }) = &run.under_way {
        let jobs = paint::counted(*jobs, "job");
        writeln!(out, "under way  {jobs}; if a worker is not heard of by {until}, what it holds is in doubt")?;
    }
    if let Some(waits) = &run.waits {
        let why = waits.why.as_ref().map(|why| format!(": {}", paint::plain(why))).unwrap_or_default();
        writeln!(out, "waits      until {}{why}", waits.until)?;
    }
    if in_doubt > 0 {
        writeln!(out, "           {}: onward outbox in-doubt", paint::error("nobody knows what became of some"))?;
    }
    writeln!(out)?;
    if skipped > 0 {
        let earlier = if skipped == 1 { "entry" } else { "entries" };
        writeln!(out, "{skipped} earlier {earlier}: --entries N shows more")?;
    }
    for AuditEntry { event, at, detail, .. } in audit {
        writeln!(out, "{at:<27}  {event:<15}  {}", paint::plain(detail.as_str()))?;
    }
    Ok(())
}
