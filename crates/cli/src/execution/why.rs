//! `onward why`: explains what an execution waits for and what happens next.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::explanation::{ExecutionExplanation, ExecutionOutcomeView, ExecutionOwner};
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
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&explanation)?
        )?;
    } else {
        let mut out = console::text_output();
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
        (
            "function",
            console::escape_control_chars(&explained.function),
        ),
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
        let state = parent.state.as_deref().unwrap_or("not found");
        ("child of", format!("{} ({state})", parent.execution.0))
    }));
    lines.extend(
        explained
            .outcome
            .as_ref()
            .map(|outcome| ("outcome", format_outcome(outcome))),
    );
    if explained.outcome.is_none() {
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
            .map(|wait| format_wait(wait, now)),
    );
    push_lines(
        &mut lines,
        "also",
        explained
            .waits
            .also_waits_for
            .iter()
            .map(|wait| format_wait(wait, now)),
    );
    push_notices(&mut lines, explained);
    push_lines(
        &mut lines,
        "next",
        (explained.next.iter()).map(|next| console::escape_control_chars(next)),
    );
    lines
}

/// Appends the messages that the execution has not recorded yet, and its alerts.
fn push_notices(lines: &mut Vec<(&'static str, String)>, explained: &ExecutionExplanation) {
    let now = explained.now.0;
    let messages = explained.pending_messages.iter().map(|it| {
        format!(
            "{}, sent {}",
            console::escape_control_chars(&it.description),
            format_instant(it.sent_at.0, now)
        )
    });
    push_lines(lines, "pending", messages);
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
    let truncated = seconds
        .checked_mul(1_000_000)
        .and_then(Timestamp::from_micros)
        .unwrap_or(at);
    format!("{truncated} ({})", format_relative_time(at, now))
}

fn format_outcome(outcome: &ExecutionOutcomeView) -> String {
    match outcome {
        ExecutionOutcomeView::Result(result) => {
            format!("result {}", console::escape_control_chars(result.as_str()))
        }
        ExecutionOutcomeView::Error(error) => format!(
            "error {}",
            console::escape_control_chars(&error.to_string())
        ),
        ExecutionOutcomeView::Cancelled(reason) => {
            format!("cancelled: {}", console::escape_control_chars(reason))
        }
        ExecutionOutcomeView::ContinuedAs(next) => {
            format!(
                "continued as {} ({})",
                next.execution.0,
                next.state.as_deref().unwrap_or("not found")
            )
        }
    }
}

fn format_owner(owner: &ExecutionOwner, now: Timestamp) -> String {
    match owner {
        ExecutionOwner::Live { name, leased_until } => format!(
            "{}, leased until {} or longer",
            console::escape_control_chars(name),
            format_instant(leased_until.0, now)
        ),
        ExecutionOwner::Expired { name, expired_at } => {
            format!(
                "none: the lease of {} expired at {}",
                console::escape_control_chars(name),
                format_instant(expired_at.0, now)
            )
        }
        ExecutionOwner::Unowned => "none".to_owned(),
    }
}

fn format_wait(wait: &ExecutionWait, now: Timestamp) -> String {
    let name = console::escape_control_chars(&wait.target_name());
    let promise = wait
        .promise
        .as_ref()
        .filter(|_| !matches!(wait.target, WaitTarget::Signal { .. }));
    let place = match (promise, &wait.join_set) {
        (Some(promise), Some(set)) => format!(" ({promise} in join set {set})"),
        (Some(promise), None) => format!(" ({promise})"),
        _ => String::new(),
    };
    let since = format!("since {}", format_instant(wait.since.0, now));
    match (&wait.target, wait.due_at()) {
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
            "{name}{place}, {since}, times out at {}",
            format_instant(at, now)
        ),
        _ => format!("{name}{place}, {since}"),
    }
}
