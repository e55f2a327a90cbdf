//! `onward campaign check`: checks whether a campaign can be deployed.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use onward_api::campaign::PrerequisiteCheck;
use onward_campaign_file::ProviderRef;
use onward_campaign_file::audience::AudienceReport;
use serde::Serialize;

use super::local_campaign::{LocalCampaign, LocalCheckResult};
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Check a campaign: its file, its templates and every row of its audience
///
/// With --server, also checks that the server has the provider and its secrets. Stores and sends
/// nothing.
///
/// Exit codes: 0 the campaign can be deployed, 1 it cannot be deployed, 2 the check failed because
/// the file is not a campaign file or the audience cannot be read.
#[derive(clap::Args)]
pub(crate) struct CampaignCheckArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write all invalid audience rows to this file as JSON Lines: line number, reason and the
    /// beginning of the row
    #[arg(long, value_name = "FILE")]
    invalid_rows: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CampaignCheckOutput {
    pass: bool,
    prerequisites: Vec<PrerequisiteCheck>,
    audience: AudienceReport,
}

pub(crate) async fn check_campaign(args: &CampaignCheckArgs) -> anyhow::Result<ExitCode> {
    let file = LocalCampaign::load(&args.file)?;
    let LocalCheckResult {
        mut prerequisites,
        report,
        ..
    } = match &args.invalid_rows {
        Some(to) => check_writing_invalid_rows(&file, to)?,
        None => file.run_checks()?,
    };
    if args.connection.is_target_given() {
        let remote = args
            .connection
            .open_connection(AccessMode::Read)
            .await?
            .check_campaign(file.to_json_document()?)
            .await?;
        merge_prerequisites(&mut prerequisites, remote.prerequisites);
    }
    let pass = prerequisites.iter().all(|it| it.pass);
    if args.json {
        let output = CampaignCheckOutput {
            pass,
            prerequisites,
            audience: report,
        };
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&output)?
        )?;
    } else {
        print_check_report(&prerequisites, &report)?;
        match &args.invalid_rows {
            Some(to) => {
                let rows = console::format_count(report.invalid, "invalid row");
                console::print_message(format_args!("{rows} written to {}", to.display()));
            }
            None if unlisted_invalid_rows(&report) > 0 => console::print_message(
                "use --invalid-rows FILE to write all invalid rows to a file",
            ),
            None => {}
        }
        if !args.connection.is_target_given()
            && matches!(file.campaign.provider, ProviderRef::Named(_))
        {
            console::print_message(
                "the provider was not checked: use --server URL to check that the server has it",
            );
        }
    }
    Ok(ExitCode::from(u8::from(!pass)))
}

/// Checks a campaign and writes invalid audience rows to the file `to` as they are found.
fn check_writing_invalid_rows(file: &LocalCampaign, to: &Path) -> anyhow::Result<LocalCheckResult> {
    let write_failed = || format!("cannot write {}", to.display());
    let mut out = BufWriter::new(File::create(to).with_context(write_failed)?);
    let result = file.run_checks_reporting(|row| {
        serde_json::to_writer(&mut out, row).with_context(write_failed)?;
        out.write_all(b"\n").with_context(write_failed)
    })?;
    out.flush().with_context(write_failed)?;
    Ok(result)
}

/// Number of invalid rows that the report counts but does not list.
fn unlisted_invalid_rows(report: &AudienceReport) -> u64 {
    report.invalid.saturating_sub(report.samples.len() as u64)
}

/// Adds the checks of the server that were not made locally; a local check of the same id wins.
pub(super) fn merge_prerequisites(
    prerequisites: &mut Vec<PrerequisiteCheck>,
    others: Vec<PrerequisiteCheck>,
) {
    for other in others {
        if !prerequisites.iter().any(|it| it.id == other.id) {
            prerequisites.push(other);
        }
    }
}

/// Prints one line per check, then the first invalid rows.
pub(super) fn print_check_report(
    prerequisites: &[PrerequisiteCheck],
    report: &AudienceReport,
) -> io::Result<()> {
    let mut out = console::text_output();
    for PrerequisiteCheck { id, pass, message } in prerequisites {
        let mark = if *pass {
            console::style_success("ok  ").to_string()
        } else {
            console::style_error("FAIL").to_string()
        };
        writeln!(
            out,
            "{mark}  {id:<19}  {}",
            console::escape_control_chars(message)
        )?;
    }
    for row in &report.samples {
        writeln!(
            out,
            "      line {}: {}: {}",
            row.line,
            console::escape_control_chars(&row.reason),
            console::escape_control_chars(&row.sample)
        )?;
    }
    let more = unlisted_invalid_rows(report);
    if more > 0 {
        writeln!(out, "      and {more} more")?;
    }
    Ok(())
}
