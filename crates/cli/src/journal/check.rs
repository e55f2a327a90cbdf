//! `onward journal check`: validates a journal line by line, keeping only the state that the rules
//! need.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use onward_journal::jsonl::JournalLineReader;
use onward_journal::{ExecutionState, JournalEvent, JournalState, Rule, RuleViolation};
use serde::Serialize;

use super::table::JournalTable;
use crate::console;
use crate::line_reader::{LineReadError, LineReader};

/// Validate a journal: print its events and states, or the first rule it breaks
///
/// Reads JSON Lines, one event per line, as described in spec/journal.md.
///
/// Exit codes: 0 the journal is valid, 1 it breaks a rule, 2 it cannot be read.
#[derive(clap::Args)]
pub(crate) struct JournalCheckArgs {
    /// Journal file; - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Print one JSON object with the result instead of the table
    #[arg(long)]
    json: bool,
    /// Print only the result, not the table
    #[arg(long, short)]
    quiet: bool,
}

/// The result as `--json` prints it.
#[derive(Serialize)]
#[serde(untagged)]
enum JournalCheckReport<'a> {
    Valid {
        ok: bool,
        events: u64,
        state: String,
    },
    Violated {
        ok: bool,
        violation: &'static str,
        sequence: u64,
        message: String,
    },
    Unreadable {
        ok: bool,
        line: u64,
        message: &'a str,
    },
    Unusable {
        ok: bool,
        message: String,
    },
}

/// Result of validating a journal.
enum JournalCheckOutcome {
    Valid { events: u64, state: ExecutionState },
    Violated { violation: RuleViolation, line: u64 },
    Unreadable { line: u64, reason: String },
}

pub(crate) fn check_journal(args: &JournalCheckArgs) -> anyhow::Result<ExitCode> {
    let mut lines = match LineReader::open_path(&args.file) {
        Ok(lines) => lines,
        Err(error) => return report_unreadable_file(args, error),
    };
    let mut table = (!args.json && !args.quiet).then(JournalTable::new);
    let outcome = match validate_lines(&mut lines, table.as_mut()) {
        Ok(outcome) => outcome,
        Err(JournalCheckError::Input(error)) => return report_unreadable_file(args, error),
        Err(JournalCheckError::Output(error)) => return Err(error.into()),
    };
    if let Some(table) = table {
        table.finish()?;
    }
    if args.json {
        writeln!(console::json_output(), "{}", outcome.to_json()?)?;
    } else {
        outcome.print_outcome();
    }
    Ok(outcome.exit_code())
}

/// Reports a file that cannot be read; with `--json`, as a JSON object.
fn report_unreadable_file(
    args: &JournalCheckArgs,
    error: anyhow::Error,
) -> anyhow::Result<ExitCode> {
    if !args.json {
        return Err(error);
    }
    let report = JournalCheckReport::Unusable {
        ok: false,
        message: format!("{error:#}"),
    };
    writeln!(
        console::json_output(),
        "{}",
        serde_json::to_string(&report)?
    )?;
    Ok(ExitCode::from(crate::EXIT_COMMAND_FAILED))
}

/// Why the validation was aborted without a result.
enum JournalCheckError {
    Input(anyhow::Error),
    Output(io::Error),
}

impl From<io::Error> for JournalCheckError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn validate_lines(
    lines: &mut LineReader,
    mut table: Option<&mut JournalTable>,
) -> Result<JournalCheckOutcome, JournalCheckError> {
    let mut reader = JournalLineReader::new();
    let mut fold = JournalState::new(reader.execution_id());
    // The rows of the table show the progress.
    let mut progress = table.is_none().then(JournalCheckProgress::on_terminal);
    while let Some(next) = lines.next_line() {
        let (line, text) = match next {
            Ok(next) => next,
            Err(LineReadError::Line { number, reason }) => {
                return Ok(JournalCheckOutcome::Unreadable {
                    line: number,
                    reason,
                });
            }
            Err(LineReadError::Input(error)) => return Err(JournalCheckError::Input(error)),
        };
        let event = match reader.read_line(text) {
            Ok(event) => event,
            Err(error) => {
                return Ok(JournalCheckOutcome::Unreadable {
                    line,
                    reason: error.to_string(),
                });
            }
        };
        if let Err(violation) = fold.push_event(&event) {
            table
                .as_mut()
                .map(|table| table.write_refused_row(&event, reader.execution_id(), violation.rule))
                .transpose()?;
            return Ok(JournalCheckOutcome::Violated { violation, line });
        }
        table
            .as_mut()
            .map(|table| write_table_row(table, &event, &fold))
            .transpose()?;
        if let Some(progress) = &mut progress {
            progress.update_count(fold.next_sequence());
        }
    }
    Ok(match fold.execution_state() {
        Some(state) => JournalCheckOutcome::Valid {
            events: fold.next_sequence(),
            state,
        },
        None => JournalCheckOutcome::Violated {
            violation: RuleViolation::empty_journal(),
            line: 0,
        },
    })
}

fn write_table_row(
    table: &mut JournalTable,
    event: &JournalEvent,
    fold: &JournalState,
) -> io::Result<()> {
    fold.execution_state().map_or(Ok(()), |state| {
        table.write_event_row(event, fold.execution_id(), state)
    })
}

impl JournalCheckOutcome {
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Valid { .. } => 0,
            Self::Violated { .. } => 1,
            Self::Unreadable { .. } => crate::EXIT_COMMAND_FAILED,
        })
    }

    /// Formats the result as JSON; the order of the fields is part of the public format.
    fn to_json(&self) -> anyhow::Result<String> {
        let report = match self {
            Self::Valid { events, state } => JournalCheckReport::Valid {
                ok: true,
                events: *events,
                state: state.to_string(),
            },
            Self::Violated {
                violation:
                    RuleViolation {
                        rule,
                        sequence,
                        message,
                        event,
                    },
                ..
            } => JournalCheckReport::Violated {
                ok: false,
                violation: rule.id(),
                sequence: *sequence,
                message: format!("{event}: {message}"),
            },
            Self::Unreadable { line, reason } => JournalCheckReport::Unreadable {
                ok: false,
                line: *line,
                message: reason,
            },
        };
        Ok(serde_json::to_string(&report)?)
    }

    /// Prints the result as text on standard error.
    fn print_outcome(&self) {
        match self {
            Self::Valid { events, state } => {
                let state = console::apply_style(console::state_style(*state), state);
                console::print_message(format_args!(
                    "{}: {events} events, {state}",
                    console::style_success("valid")
                ));
            }
            Self::Violated { violation, line } => print_violation(violation, *line),
            Self::Unreadable { line, reason } => {
                console::print_message(format_args!(
                    "{}: line {line}: {reason}",
                    console::style_error("unreadable")
                ));
            }
        }
    }
}

fn print_violation(violation: &RuleViolation, line: u64) {
    let RuleViolation {
        rule,
        sequence,
        event,
        message,
    } = violation;
    let invariant = Rule::invariant(*rule);
    console::print_message(format_args!(
        "{}: {} ({})",
        console::style_error("violation"),
        console::style_error(rule),
        invariant.name
    ));
    match line {
        0 => console::print_message(format_args!("  where: the journal has no lines")),
        line => console::print_message(format_args!(
            "  where: sequence {sequence}, line {line}, {event}"
        )),
    }
    console::print_message(format_args!("  what:  {message}"));
    console::print_message(format_args!("  rule:  {}", invariant.text));
}

/// Event counter on the terminal while a long journal is validated without printing the table.
struct JournalCheckProgress {
    is_shown: bool,
    is_enabled: bool,
}

impl JournalCheckProgress {
    const UPDATE_INTERVAL: u64 = 1 << 17;

    fn on_terminal() -> Self {
        Self {
            is_shown: false,
            is_enabled: io::stderr().is_terminal(),
        }
    }

    fn update_count(&mut self, events: u64) {
        if self.is_enabled && events.is_multiple_of(Self::UPDATE_INTERVAL) {
            self.is_shown = true;
            let _ = write!(io::stderr(), "\r{events} events checked");
        }
    }
}

impl Drop for JournalCheckProgress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
