//! `onward why`: explains what an execution waits for and what happens next.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::explanation::{ExecutionEndView, ExecutionExplanation, ExecutionOwner};
use onward_api::format_relative_time;
use onward_api::waits::{ExecutionWait, WaitTarget};
use onward_base::Timestamp;

use super::ExecutionArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Explain what an execution waits for, since when, which process owns it, and what happens next
///
/// Exit codes: 0 the execution was explained, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Maximum number of lines under one label; the JSON output contains all.
const SHOWN_MAX: usize = 8;

pub(crate) async fn explain_execution(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let explanation = onward.explain_execution(&args.execution.id).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&explanation)?)?;
    } else {
        let mut out = anstream::stdout().lock();
        for (label, line) in explanation_lines(&explanation) {
            writeln!(out, "{label:<10} {line}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the label and text of each line; further lines under the same label have an empty one.
fn explanation_lines(explained: &ExecutionExplanation) -> Vec<(&'static str, String)> {
    let now = explained.now.0;
    let mut lines = vec![
        ("execution", explained.execution.0.to_string()),
        ("function", explained.function.clone()),
        (
            "state",
            format!(
                "{}, since {}",
                console::style_state_name(&explained.state),
                format_instant(explained.since.0, now)
            ),
        ),
    ];
    lines.extend(explained.parent.as_ref().map(|parent| {
        let state = parent.state.as_deref().unwrap_or("not there");
        ("child of", format!("{} ({state})", parent.execution.0))
    }));
    lines.extend(
        explained
            .end
            .as_ref()
            .map(|end| ("ended with", format_end(end))),
    );
    if explained.end.is_none() {
        lines.push(("owner", format_owner(&explained.owner, now)));
    }
    let label = match explained.waits.mode.as_deref() {
        Some("any") if explained.waits.waits_for.len() > 1 => "waits for one of",
        Some("all") if explained.waits.waits_for.len() > 1 => "waits for all of",
        _ => "waits for",
    };
    push_lines(
        &mut lines,
        label,
        explained
            .waits
            .waits_for
            .iter()
            .map(|waiting| format_wait(waiting, now)),
    );
    push_lines(
        &mut lines,
        "besides",
        explained
            .waits
            .besides
            .iter()
            .map(|waiting| format_wait(waiting, now)),
    );
    push_notices(&mut lines, explained);
    push_lines(&mut lines, "next", explained.next.iter().cloned());
    lines
}

/// Appends the messages on their way to the execution, and its alerts.
fn push_notices(lines: &mut Vec<(&'static str, String)>, explained: &ExecutionExplanation) {
    let now = explained.now.0;
    let messages = explained.on_its_way.iter().map(|it| {
        format!(
            "{}, sent {}",
            console::escape_control_chars(&it.what),
            format_instant(it.sent_at.0, now)
        )
    });
    push_lines(lines, "on its way", messages);
    let alerts = explained.alerts.iter().map(|it| {
        format!(
            "{}: {}, {}",
            it.code,
            console::escape_control_chars(&it.message),
            format_instant(it.raised_at.0, now)
        )
    });
    push_lines(
        lines,
        "alerts",
        alerts.map(|line| console::style_error(line).to_string()),
    );
}

/// Appends lines under one label; a label that is too long for the column gets its own line.
fn push_lines(
    lines: &mut Vec<(&'static str, String)>,
    label: &'static str,
    all: impl ExactSizeIterator<Item = String>,
) {
    let left = all.len().saturating_sub(SHOWN_MAX);
    let mut label = label;
    if label.len() > 10 && all.len() > 0 {
        lines.push((label, String::new()));
        label = "";
    }
    for line in all.take(SHOWN_MAX) {
        lines.push((std::mem::take(&mut label), line));
    }
    if left > 0 {
        lines.push(("", format!("and {left} more")));
    }
}

/// Formats an instant to the second, and its distance from `now`.
fn format_instant(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.as_micros().div_euclid(1_000_000);
    let whole = seconds
        .checked_mul(1_000_000)
        .and_then(Timestamp::from_micros)
        .unwrap_or(at);
    format!("{whole} ({})", format_relative_time(at, now))
}

fn format_end(end: &ExecutionEndView) -> String {
    match end {
        ExecutionEndView::Result(result) => format!(
            "the result {}",
            console::escape_control_chars(result.as_str())
        ),
        ExecutionEndView::Error(error) => format!(
            "the error {}",
            console::escape_control_chars(&error.to_string())
        ),
        ExecutionEndView::Cancelled(reason) => format!(
            "its cancellation: {}",
            console::escape_control_chars(reason)
        ),
        ExecutionEndView::ContinuedAs(next) => {
            format!(
                "a new execution in its place: {} ({})",
                next.execution.0,
                next.state.as_deref().unwrap_or("not there")
            )
        }
    }
}

fn format_owner(owner: &ExecutionOwner, now: Timestamp) -> String {
    match owner {
        ExecutionOwner::Process { name, until } => format!(
            "{}, until {} or longer",
            console::escape_control_chars(name),
            format_instant(until.0, now)
        ),
        ExecutionOwner::Gone { name, since } => {
            format!(
                "nobody: the lease of {} ran out at {}",
                console::escape_control_chars(name),
                format_instant(since.0, now)
            )
        }
        ExecutionOwner::Nobody => "nobody".to_owned(),
    }
}

fn format_wait(waiting: &ExecutionWait, now: Timestamp) -> String {
    let name = waiting.target_name();
    let promise = waiting
        .promise
        .as_ref()
        .filter(|_| !matches!(waiting.target, WaitTarget::Signal { .. }));
    let place = match (promise, &waiting.join_set) {
        (Some(promise), Some(set)) => format!(" ({promise} in join set {set})"),
        (Some(promise), None) => format!(" ({promise})"),
        _ => String::new(),
    };
    let since = format!("since {}", format_instant(waiting.since.0, now));
    match (&waiting.target, waiting.due_at()) {
        (WaitTarget::Retry { error, .. }, Some(at)) => {
            let error = console::escape_control_chars(&error.to_string());
            format!(
                "{name}{place}, due {}; the last attempt failed with {error}",
                format_instant(at, now)
            )
        }
        (WaitTarget::Timer { .. }, Some(at)) => {
            format!("{name}{place} until {}, {since}", format_instant(at, now))
        }
        (_, Some(at)) => format!(
            "{name}{place}, {since}, at most until {}",
            format_instant(at, now)
        ),
        _ => format!("{name}{place}, {since}"),
    }
}
