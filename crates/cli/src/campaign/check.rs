//! `onward campaign check`: whether a campaign can be deployed.

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

/// Check a campaign: its file, its templates, and every row of its audience
///
/// With --server, also whether that server has the provider and its secrets. Nothing is stored or sent.
///
/// Exit codes: 0 it can be deployed, 1 it cannot, 2 it could not be checked, because the file is not one of a campaign or the audience cannot be read.
#[derive(clap::Args)]
pub(crate) struct CampaignCheckArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// The campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write every row that cannot be used to a file, one JSON object a line: its line, the reason, and how it begins
    #[arg(long, value_name = "FILE")]
    bad_rows: Option<PathBuf>,
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
    } = match &args.bad_rows {
        Some(to) => check_writing_bad_rows(&file, to)?,
        None => file.run_checks()?,
    };
    if args.connection.is_target_given() {
        let there = args
            .connection
            .open_connection(AccessMode::Read)
            .await?
            .check_campaign(file.to_json_document()?)
            .await?;
        merge_prerequisites(&mut prerequisites, there.prerequisites);
    }
    let pass = prerequisites.iter().all(|it| it.pass);
    if args.json {
        let told = CampaignCheckOutput {
            pass,
            prerequisites,
            audience: report,
        };
        writeln!(io::stdout(), "{}", serde_json::to_string(&told)?)?;
    } else {
        print_check_report(&prerequisites, &report)?;
        match &args.bad_rows {
            Some(to) => {
                let rows = console::format_count(report.bad, "bad row");
                console::print_message(format_args!("{rows} written to {}", to.display()));
            }
            None if unshown_bad_rows(&report) > 0 => {
                console::print_message("--bad-rows FILE writes all of them to a file")
            }
            None => {}
        }
        if !args.connection.is_target_given()
            && matches!(file.campaign.provider, ProviderRef::Named(_))
        {
            console::print_message(
                "whether there is such a provider is not known: --server asks one",
            );
        }
    }
    Ok(ExitCode::from(u8::from(!pass)))
}

/// Looks at a campaign, and writes the rows that cannot be used to a file as they are found.
fn check_writing_bad_rows(file: &LocalCampaign, to: &Path) -> anyhow::Result<LocalCheckResult> {
    let cannot = || format!("cannot write {}", to.display());
    let mut out = BufWriter::new(File::create(to).with_context(cannot)?);
    let looked = file.run_checks_reporting(|row| {
        serde_json::to_writer(&mut out, row).with_context(cannot)?;
        out.write_all(b"\n").with_context(cannot)
    })?;
    out.flush().with_context(cannot)?;
    Ok(looked)
}

/// Bad rows that are counted, and not shown.
fn unshown_bad_rows(report: &AudienceReport) -> u64 {
    report.bad.saturating_sub(report.samples.len() as u64)
}

/// Adds what somebody else has looked at and we have not.
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

/// What was looked at, one a line, and the first rows that cannot be used.
pub(super) fn print_check_report(
    prerequisites: &[PrerequisiteCheck],
    report: &AudienceReport,
) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
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
    let more = unshown_bad_rows(report);
    if more > 0 {
        writeln!(out, "      and {more} more")?;
    }
    Ok(())
}
