//! `onward state verify`: checks stored run events and snapshots for consistency.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::run::{KeyContract, VerifyFinding, VerifyProgress, VerifyReport};
use onward_runs::RunId;

use crate::connection::{AccessMode, ConnectionArgs};
use crate::console::{self, OutputFormat, format_count};
use crate::progress::ProgressLine;

/// Verify stored runs: keys, order, contiguity, and that each snapshot is what its log reduces to
///
/// Reads everything and changes nothing.
///
/// Exit codes: 0 no errors were found, 1 errors were found and printed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct StateVerifyArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Only this run [default: all runs]
    run: Option<RunId>,
    /// Also accept idempotency keys in the form of contract v1, of logs that were converted
    #[arg(long)]
    accept_v1_keys: bool,
    /// Print one JSON object per finding and a report at the end
    #[arg(long)]
    json: bool,
}

pub(crate) async fn verify_state(args: &StateVerifyArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let mut progress = ProgressLine::for_output(OutputFormat::from_json_flag(args.json));
    let mut written = Ok(());
    let mut on_progress = |update| match update {
        VerifyProgress::Finding(finding) if written.is_ok() => {
            written = print_finding(args, &finding)
        }
        VerifyProgress::Finding(_) => {}
        VerifyProgress::Examined { runs, events } => {
            progress.update_count(runs, || format!("{runs} runs, {events} events"))
        }
    };
    let keys = if args.accept_v1_keys {
        KeyContract::V2OrV1
    } else {
        KeyContract::V2Only
    };
    let report = onward
        .verify_runs(args.run.as_deref(), keys, &mut on_progress)
        .await?;
    drop(progress);
    written?;
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&report)?
        )?;
    } else {
        let VerifyReport {
            ok,
            runs,
            events,
            findings,
        } = report;
        let result = if ok {
            console::style_success("valid").to_string()
        } else {
            console::style_error("invalid").to_string()
        };
        let (events, runs) = (format_count(events, "event"), format_count(runs, "run"));
        console::print_message(format_args!(
            "{result}: {events} of {runs}, {}",
            format_count(findings, "finding")
        ));
    }
    Ok(ExitCode::from(u8::from(!report.ok)))
}

fn print_finding(args: &StateVerifyArgs, finding: &VerifyFinding) -> io::Result<()> {
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(finding)?
        )
    } else {
        let finding = console::escape_control_chars(&finding.to_string());
        writeln!(console::text_output(), "{finding}")
    }
}
