//! `onward doctor`: checks a store for stuck work.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::finding::{DoctorFinding, DoctorProgress, DoctorReport, FindingClass};

use crate::connection::{AccessMode, ConnectionArgs};
use crate::console::{self, OutputFormat, format_count};
use crate::progress::ProgressLine;

/// Check that no work is stuck: everything that executions and campaign runs wait for exists and
/// will wake them
///
/// Reads every execution and every campaign run of every tenant and changes nothing. Other
/// processes may use the store at the same time.
///
/// A finding is wrong (an invariant does not hold) or needs attention (an alert was raised and
/// nothing has happened since, or an operator has to settle items in doubt). Warnings (work is late
/// because no process runs it) are listed but do not change the exit code.
///
/// Exit codes: 0 no work is stuck, 1 there are findings, and they were printed, 2 the command
/// failed.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print one JSON object per finding and a report at the end
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run_doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let mut progress = ProgressLine::for_output(OutputFormat::from_json_flag(args.json));
    let mut written = Ok(());
    let mut on_progress = |update| match update {
        DoctorProgress::Finding(found) if written.is_ok() => written = print_finding(args, &found),
        DoctorProgress::Finding(_) => {}
        DoctorProgress::Examined { executions, events } => {
            progress.update_count(executions, || format_progress(executions, events))
        }
    };
    let report = onward.run_doctor(&mut on_progress).await?;
    drop(progress);
    written?;
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&report)?
        )?;
    } else {
        let DoctorReport {
            ok,
            executions,
            events,
            messages,
            campaign_runs,
            items,
            findings,
            warnings,
        } = report;
        let result = if ok {
            console::style_success("no work is stuck").to_string()
        } else {
            console::style_error("problems found").to_string()
        };
        let examined = format!(
            "{} with {}",
            format_count(executions, "execution"),
            format_count(events, "event")
        );
        let campaigns = format!(
            "{} with {}",
            format_count(campaign_runs, "campaign run"),
            format_count(items, "item")
        );
        let (findings, warnings) = (
            format_count(findings, "finding"),
            format_count(warnings, "warning"),
        );
        let messages = format_count(messages, "message");
        console::print_message(format_args!(
            "{result}: {examined}, {messages}, {campaigns}, {findings}, {warnings}"
        ));
    }
    Ok(ExitCode::from(u8::from(!report.ok)))
}

fn print_finding(args: &DoctorArgs, found: &DoctorFinding) -> io::Result<()> {
    if args.json {
        return writeln!(console::json_output(), "{}", serde_json::to_string(found)?);
    }
    let mark = if found.class == FindingClass::Warning {
        "warning: "
    } else {
        ""
    };
    let found = console::escape_control_chars(&found.to_string());
    writeln!(console::text_output(), "{mark}{found}")
}

/// Formats the number of executions and events examined so far.
fn format_progress(executions: u64, events: u64) -> String {
    format!("{executions} executions, {events} events")
}
