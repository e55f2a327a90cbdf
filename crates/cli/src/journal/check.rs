//! `onward journal check`: reads a journal line by line and judges it, holding only what the rules need.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use onward_journal::jsonl::Reader;
use onward_journal::{Fold, JournalEvent, Rule, State, Violation};
use serde::Serialize;

use super::table::Table;
use crate::lines::{Lines, Unreadable};
use crate::paint;

/// Judge a journal: print its events and states, or the first rule it breaks
///
/// Reads JSON Lines, one event a line, as described in spec/journal.md.
///
/// Exit codes: 0 the journal is valid, 1 it breaks a rule, 2 it cannot be read.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The journal; - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Print one JSON object with the verdict instead of the table
    #[arg(long)]
    json: bool,
    /// Print the verdict only, not the table
    #[arg(long, short)]
    quiet: bool,
}

/// The verdict as `--json` prints it.
#[derive(Serialize)]
#[serde(untagged)]
enum Report<'a> {
    Valid { ok: bool, events: u64, state: String },
    Violated { ok: bool, violation: &'static str, sequence: u64, message: String },
    Unreadable { ok: bool, line: u64, message: &'a str },
    Unusable { ok: bool, message: String },
}

/// What a journal turned out to be.
enum Verdict {
    Valid { events: u64, state: State },
    Violated { violation: Violation, line: u64 },
    Unreadable { line: u64, reason: String },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut lines = match Lines::open(&args.file) {
        Ok(lines) => lines,
        Err(error) => return unusable(args, error),
    };
    let mut table = (!args.json && !args.quiet).then(Table::new);
    let verdict = match judge(&mut lines, table.as_mut()) {
        Ok(verdict) => verdict,
        Err(Stopped::Input(error)) => return unusable(args, error),
        Err(Stopped::Output(error)) => return Err(error.into()),
    };
    if let Some(table) = table {
        table.finish()?;
    }
    if args.json {
        writeln!(io::stdout(), "{}", verdict.to_json()?)?;
    } else {
        verdict.tell();
    }
    Ok(verdict.exit_code())
}

/// The file cannot be had: with `--json` that is an answer too.
fn unusable(args: &Args, error: anyhow::Error) -> anyhow::Result<ExitCode> {
    if !args.json {
        return Err(error);
    }
    let report = Report::Unusable { ok: false, message: format!("{error:#}") };
    writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(ExitCode::from(crate::EXIT_UNUSABLE))
}

/// Why judging did not come to a verdict.
enum Stopped {
    Input(anyhow::Error),
    Output(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn judge(lines: &mut Lines, mut table: Option<&mut Table>) -> Result<Verdict, Stopped> {
    let mut reader = Reader::new();
    let mut fold = Fold::new(reader.execution());
    let mut progress = Progress::new(table.is_none());
    while let Some(next) = lines.next() {
        let (line, text) = match next {
            Ok(next) => next,
            Err(Unreadable::Line { number, reason }) => return Ok(Verdict::Unreadable { line: number, reason }),
            Err(Unreadable::Input(error)) => return Err(Stopped::Input(error)),
        };
        let event = match reader.read(text) {
            Ok(event) => event,
            Err(error) => return Ok(Verdict::Unreadable { line, reason: error.to_string() }),
        };
        if let Err(violation) = fold.push(&event) {
            table.as_mut().map(|table| table.refused(&event, reader.execution(), violation.rule)).transpose()?;
            return Ok(Verdict::Violated { violation, line });
        }
        table.as_mut().map(|table| show(table, &event, &fold)).transpose()?;
        progress.at(fold.version());
    }
    Ok(match fold.state() {
        Some(state) => Verdict::Valid { events: fold.version(), state },
        None => Verdict::Violated { violation: Violation::empty(), line: 0 },
    })
}

fn show(table: &mut Table, event: &JournalEvent, fold: &Fold) -> io::Result<()> {
    fold.state().map_or(Ok(()), |state| table.row(event, fold.execution(), state))
}

impl Verdict {
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Valid { .. } => 0,
            Self::Violated { .. } => 1,
            Self::Unreadable { .. } => crate::EXIT_UNUSABLE,
        })
    }

    /// The public form; the order of the fields is part of it.
    fn to_json(&self) -> anyhow::Result<String> {
        let report = match self {
            Self::Valid { events, state } => Report::Valid { ok: true, events: *events, state: state.to_string() },
            Self::Violated { violation: Violation { rule, sequence, message, event }, .. } => Report::Violated {
                ok: false,
                violation: rule.id(),
                sequence: *sequence,
                message: format!("{event}: {message}"),
            },
            Self::Unreadable { line, reason } => Report::Unreadable { ok: false, line: *line, message: reason },
        };
        Ok(serde_json::to_string(&report)?)
    }

    /// Tells people.
    fn tell(&self) {
        match self {
            Self::Valid { events, state } => {
                let state = paint::styled(paint::of_state(*state), state);
                paint::say(format_args!("{}: {events} events, {state}", paint::good("valid")));
            }
            Self::Violated { violation, line } => tell_violation(violation, *line),
            Self::Unreadable { line, reason } => {
                paint::say(format_args!("{}: line {line}: {reason}", paint::error("unreadable")));
            }
        }
    }
}

fn tell_violation(violation: &Violation, line: u64) {
    let Violation { rule, sequence, event, message } = violation;
    let invariant = Rule::invariant(*rule);
    paint::say(format_args!("{}: {} ({})", paint::error("violation"), paint::error(rule), invariant.name));
    match line {
        0 => paint::say(format_args!("  where: no line at all")),
        line => paint::say(format_args!("  where: sequence {sequence}, line {line}, {event}")),
    }
    paint::say(format_args!("  what:  {message}"));
    paint::say(format_args!("  rule:  {}", invariant.text));
}

/// A count on the terminal while a long journal is judged and nothing else shows it.
struct Progress {
    shown: bool,
    wanted: bool,
}

impl Progress {
    const EVERY: u64 = 1 << 17;

    fn new(is_quiet: bool) -> Self {
        Self { shown: false, wanted: is_quiet && io::stderr().is_terminal() }
    }

    fn at(&mut self, events: u64) {
        if self.wanted && events.is_multiple_of(Self::EVERY) {
            self.shown = true;
            let _ = write!(io::stderr(), "\r{events} events judged");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
