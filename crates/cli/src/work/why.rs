//! `onward why`: what an execution waits for, and what happens next.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::explanation::{End, Explanation, Owner};
use onward_api::waits::{Waiting, What};
use onward_api::{Shown, ago};
use onward_journal::Timestamp;

use super::ExecutionArg;
use crate::access::{Want, WorkArgs};
use crate::paint;

/// Explain what an execution waits for, since when, who works on it, and what happens next
///
/// Exit codes: 0 it was explained, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Members of a join set that are shown; the JSON has all.
const SHOWN_MAX: usize = 8;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let explanation = onward.explain(&args.execution.id).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&explanation)?)?;
    } else {
        let mut out = anstream::stdout().lock();
        for (label, line) in lines(&explanation) {
            writeln!(out, "{label:<10} {line}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Label and text of each line; what follows under the same label has none.
fn lines(explained: &Explanation) -> Vec<(&'static str, String)> {
    let now = explained.now.0;
    let moment = |at: Shown<Timestamp>| moment(at.0, now);
    let mut lines = vec![
        ("execution", explained.execution.0.to_string()),
        ("function", explained.function.clone()),
        ("state", format!("{}, since {}", paint::state(&explained.state), moment(explained.since))),
    ];
    lines.extend(explained.parent.as_ref().map(|parent| {
        let state = parent.state.as_deref().unwrap_or("not there");
        ("child of", format!("{} ({state})", parent.execution.0))
    }));
    lines.extend(explained.end.as_ref().map(|end| ("ended with", ended(end))));
    if explained.end.is_none() {
        lines.push(("owner", owner(&explained.owner, now)));
    }
    let label = match explained.waits.mode.as_deref() {
        Some("any") if explained.waits.waits_for.len() > 1 => "waits for one of",
        Some("all") if explained.waits.waits_for.len() > 1 => "waits for all of",
        _ => "waits for",
    };
    several(&mut lines, label, explained.waits.waits_for.iter().map(|waiting| waits(waiting, now)));
    several(&mut lines, "besides", explained.waits.besides.iter().map(|waiting| waits(waiting, now)));
    let messages =
        explained.on_its_way.iter().map(|it| format!("{}, sent {}", paint::plain(&it.what), moment(it.sent_at)));
    several(&mut lines, "on its way", messages);
    let alerts = explained
        .alerts
        .iter()
        .map(|it| format!("{}: {}, {}", it.code, paint::plain(&it.message), moment(it.raised_at)));
    several(&mut lines, "alerts", alerts.map(|line| paint::error(line).to_string()));
    several(&mut lines, "next", explained.next.iter().cloned());
    lines
}

/// Lines under one label; the label has a line of its own when it is long.
fn several(lines: &mut Vec<(&'static str, String)>, label: &'static str, all: impl ExactSizeIterator<Item = String>) {
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

/// An instant to the second, and how far away it is.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.as_micros().div_euclid(1_000_000);
    let whole = seconds.checked_mul(1_000_000).and_then(Timestamp::from_micros).unwrap_or(at);
    format!("{whole} ({})", ago(at, now))
}

fn ended(end: &End) -> String {
    match end {
        End::Result(result) => format!("the result {}", paint::plain(result.as_str())),
        End::Error(error) => format!("the error {}", paint::plain(&error.to_string())),
        End::Cancelled(reason) => format!("its cancellation: {}", paint::plain(reason)),
        End::ContinuedAs(next) => {
            format!(
                "a new execution in its place: {} ({})",
                next.execution.0,
                next.state.as_deref().unwrap_or("not there")
            )
        }
    }
}

fn owner(owner: &Owner, now: Timestamp) -> String {
    match owner {
        Owner::Process { name, until } => format!("{}, until {} or longer", paint::plain(name), moment(until.0, now)),
        Owner::Gone { name, since } => {
            format!("nobody: the lease of {} ran out at {}", paint::plain(name), moment(since.0, now))
        }
        Owner::Nobody => "nobody".to_owned(),
    }
}

fn waits(waiting: &Waiting, now: Timestamp) -> String {
    let name = waiting.name();
    let promise = waiting.promise.as_ref().filter(|_| !matches!(waiting.what, What::Signal { .. }));
    let place = match (promise, &waiting.join_set) {
        (Some(promise), Some(set)) => format!(" ({promise} in join set {set})"),
        (Some(promise), None) => format!(" ({promise})"),
        _ => String::new(),
    };
    let since = format!("since {}", moment(waiting.since.0, now));
    match (&waiting.what, waiting.due()) {
        (What::Retry { error, .. }, Some(at)) => {
            let error = paint::plain(&error.to_string());
            format!("{name}{place}, due {}; the last attempt failed with {error}", moment(at, now))
        }
        (What::Timer { .. }, Some(at)) => format!("{name}{place} until {}, {since}", moment(at, now)),
        (_, Some(at)) => format!("{name}{place}, {since}, at most until {}", moment(at, now)),
        _ => format!("{name}{place}, {since}"),
    }
}
