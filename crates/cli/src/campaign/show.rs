//! `onward campaign show`: prints a campaign run, its counts and its audit trail.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::campaign::{
    ActiveJobs, CampaignAuditEntry, CampaignItemCounts, CampaignRunSummary, CampaignRunView,
    ListAuditEntriesQuery,
};
use serde::Serialize;

use super::{CampaignRunArg, ls};
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::console;

/// Show a campaign run: its settings, counts and audit trail
///
/// Exit codes: 0 the run was shown, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct CampaignShowArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Number of audit trail entries to show: the newest ones
    #[arg(long, default_value_t = 20, value_name = "N")]
    entries: usize,
    /// Print one JSON object with the whole audit trail
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CampaignShowOutput<'a> {
    #[serde(flatten)]
    run: &'a CampaignRunView,
    audit: &'a [CampaignAuditEntry],
}

/// Number of audit trail entries per request.
const AUDIT_PAGE_SIZE: u32 = 1_000;

pub(crate) async fn show_campaign_run(args: &CampaignShowArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let run = onward.get_campaign_run(&args.run.run).await?;
    let audit = read_audit_trail(&onward, &run.summary.run).await?;
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&CampaignShowOutput {
                run: &run,
                audit: &audit
            })?
        )?;
    } else {
        let skipped = audit.len().saturating_sub(args.entries);
        print_campaign_run(&run, skipped, &audit[skipped..])?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn read_audit_trail(
    onward: &TargetConnection,
    run: &str,
) -> anyhow::Result<Vec<CampaignAuditEntry>> {
    let (mut entries, mut after) = (Vec::new(), None);
    loop {
        let page = onward
            .list_audit_entries(
                run,
                ListAuditEntriesQuery {
                    after,
                    limit: Some(AUDIT_PAGE_SIZE),
                },
            )
            .await?;
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

fn print_campaign_run(
    run: &CampaignRunView,
    skipped: usize,
    audit: &[CampaignAuditEntry],
) -> io::Result<()> {
    let mut out = console::text_output();
    write_run_summary(&mut out, run)?;
    write_run_activity(&mut out, run)?;
    writeln!(out)?;
    write_audit_entries(&mut out, skipped, audit)
}

/// Writes the settings, the status and the item counts of a run.
fn write_run_summary(out: &mut impl io::Write, run: &CampaignRunView) -> io::Result<()> {
    let CampaignRunSummary {
        run: id,
        campaign,
        channel,
        items,
        jobs,
        scheduled_for,
        created_at,
        ..
    } = &run.summary;
    let CampaignItemCounts {
        sent,
        failed,
        skipped,
        in_doubt,
        waiting,
    } = run.counts;
    writeln!(
        out,
        "run        {id}\ncampaign   {}",
        console::escape_control_chars(campaign)
    )?;
    writeln!(
        out,
        "channel    {}, provider {}",
        channel.as_str(),
        console::escape_control_chars(&run.provider)
    )?;
    writeln!(out, "status     {}", ls::status_label(&run.summary))?;
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
    let jobs = console::format_count((*jobs).into(), "job");
    writeln!(
        out,
        "items      {items} in {jobs}: {sent} sent, {failed} failed, {skipped} skipped, {in_doubt} in doubt, {waiting} waiting"
    )?;
    Ok(())
}

/// Writes what a run does or waits for, and whether items are in doubt.
fn write_run_activity(out: &mut impl io::Write, run: &CampaignRunView) -> io::Result<()> {
    if let Some(ActiveJobs { jobs, leased_until }) = &run.active_jobs {
        let jobs = console::format_count(*jobs, "job");
        writeln!(
            out,
            "active     {jobs}; items being sent are in doubt if the lease expires at {leased_until}"
        )?;
    }
    if let Some(waits) = &run.waits {
        let why = waits
            .error
            .as_ref()
            .map(|error| format!(": {}", console::escape_control_chars(error)))
            .unwrap_or_default();
        writeln!(out, "waits      until {}{why}", waits.until)?;
    }
    if run.counts.in_doubt > 0 {
        writeln!(
            out,
            "           {}: onward outbox in-doubt",
            console::style_error("some items are in doubt")
        )?;
    }
    Ok(())
}

/// Writes the newest entries of the audit trail and the number of earlier ones.
fn write_audit_entries(
    out: &mut impl io::Write,
    skipped: usize,
    audit: &[CampaignAuditEntry],
) -> io::Result<()> {
    if skipped > 0 {
        let earlier = if skipped == 1 { "entry" } else { "entries" };
        writeln!(
            out,
            "{skipped} earlier {earlier}: use --entries N to show more"
        )?;
    }
    for CampaignAuditEntry {
        event, at, detail, ..
    } in audit
    {
        writeln!(
            out,
            "{at:<27}  {event:<15}  {}",
            console::escape_control_chars(detail.as_str())
        )?;
    }
    Ok(())
}
