//! Checks that code repeats what a journal records. The journal is a copy in memory: whatever the
//! code requests, nothing is stored and nothing is performed.

use onward_base::Timestamp;
use onward_execution::{
    Execution, ExecutionEnvironment, ExecutionLimits, ExecutionProgress, Guest, GuestLogLevel,
    ReplayDivergence,
};
use onward_journal::{ErrorKind, Event, Journal, JournalEvent, RuleViolation};
use serde::Serialize;

use crate::waits;
use onward_api::waits::ExecutionWaits;

/// Number of events the code may add beyond the recorded journal: enough to see what it requests.
const EVENTS_BEYOND_MAX: u64 = 1_000;

/// Result of replaying a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "outcome",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ReplayOutcome {
    /// The code repeats what is recorded.
    Repeats {
        /// Where the replay ended.
        end: ReplayEnd,
    },
    /// The code requests something other than what is recorded.
    Diverges {
        /// Sequence of the event that the code does not repeat.
        sequence: u64,
        /// Description of what is recorded.
        recorded: String,
        /// Description of what the code requested.
        requested: String,
    },
}

/// Where a replay that repeats its journal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "at", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ReplayEnd {
    /// At the recorded end of the execution.
    Over,
    /// At an await that is not yet satisfied.
    Waits(ExecutionWaits),
    /// Beyond the journal: the code continues where the record ends.
    Beyond {
        /// Description of the first thing it requests.
        requested: String,
    },
    /// Before the code began: the execution was cancelled without having run.
    NotBegun,
}

/// Runs `guest` against the recorded journal and compares what it requests. Fails if the recorded
/// events violate a rule of the journal.
pub fn replay_journal(
    journal: &Journal,
    guest: &mut dyn Guest,
) -> Result<ReplayOutcome, RuleViolation> {
    let events = journal.events();
    if !events
        .iter()
        .any(|recorded| is_caused_by_code(&recorded.event))
        && was_cancelled(journal)
    {
        return Ok(ReplayOutcome::Repeats {
            end: ReplayEnd::NotBegun,
        });
    }
    let last = events
        .last()
        .filter(|_| journal.journal_state().phase().is_terminal());
    let known = events.len() - usize::from(last.is_some());
    let copy = Journal::recover(
        journal.journal_state().execution_id(),
        events[..known].to_vec(),
    )?;
    let limits = ExecutionLimits {
        events_max: known as u64 + EVENTS_BEYOND_MAX,
        ..ExecutionLimits::default()
    };
    let mut execution = Execution::recover(copy, limits);
    execution.rewind_guest();
    let mut environment = ReplayWorld(
        events
            .last()
            .map_or(Timestamp::EPOCH, |last| last.timestamp),
    );
    let progress = loop {
        match execution.run(guest, &mut environment) {
            // A guest that was evicted fails in its next turn.
            Ok(
                ExecutionProgress::Paused
                | ExecutionProgress::BatchFull
                | ExecutionProgress::Evicted,
            ) => {}
            Ok(progress) => break progress,
            Err(violation) => return Ok(divergence_from_violation(&violation)),
        }
    };
    let journal = execution.journal();
    let beyond = journal.events().get(known);
    Ok(match (progress, last) {
        (
            ExecutionProgress::Diverged(ReplayDivergence {
                sequence,
                recorded,
                requested,
            }),
            _,
        ) => ReplayOutcome::Diverges {
            sequence,
            recorded,
            requested,
        },
        (_, None) => ReplayOutcome::Repeats {
            end: end_of_open_journal(journal, beyond),
        },
        (_, Some(last)) => compare_final_event(journal, last, beyond),
    })
}

/// Where the replay of a journal without a terminal event ended.
fn end_of_open_journal(journal: &Journal, beyond: Option<&JournalEvent>) -> ReplayEnd {
    let own = journal.journal_state().execution_id();
    match beyond {
        None => ReplayEnd::Waits(waits::pending_waits(journal)),
        Some(first) => ReplayEnd::Beyond {
            requested: first.event.describe(own).to_string(),
        },
    }
}

/// Compares the end of the code with the recorded terminal event `last`.
fn compare_final_event(
    journal: &Journal,
    last: &JournalEvent,
    beyond: Option<&JournalEvent>,
) -> ReplayOutcome {
    let own = journal.journal_state().execution_id();
    let is_cancelled = matches!(last.event, Event::ExecutionCancelled { .. });
    let requested = match beyond {
        Some(end) if is_same_end(&last.event, &end.event) => {
            return ReplayOutcome::Repeats {
                end: ReplayEnd::Over,
            };
        }
        // Cleanup that never returns does not keep an execution alive.
        None if is_cancelled => {
            return ReplayOutcome::Repeats {
                end: ReplayEnd::Over,
            };
        }
        Some(other) => other.event.describe(own).to_string(),
        None => "nothing: it waits".to_owned(),
    };
    ReplayOutcome::Diverges {
        sequence: last.sequence,
        recorded: last.event.describe(own).to_string(),
        requested,
    }
}

/// Whether two terminal events are equal. Two traps count as equal, because a trap names its place
/// in the code and another build has another place.
fn is_same_end(recorded: &Event, repeated: &Event) -> bool {
    match (recorded, repeated) {
        (Event::ExecutionFailed { error: one }, Event::ExecutionFailed { error: other }) => {
            one == other || (one.kind == ErrorKind::Trap && other.kind == ErrorKind::Trap)
        }
        _ => recorded == repeated,
    }
}

/// A rule of the journal forbids what the code requests, so the code cannot have requested it when
/// the journal was written.
fn divergence_from_violation(violation: &RuleViolation) -> ReplayOutcome {
    let RuleViolation {
        sequence,
        event,
        message,
        rule,
    } = violation;
    let recorded = "no event that may be followed by it".to_owned();
    ReplayOutcome::Diverges {
        sequence: *sequence,
        recorded,
        requested: format!("{event}, against rule {rule}: {message}"),
    }
}

fn was_cancelled(journal: &Journal) -> bool {
    matches!(
        journal.events().last().map(|last| &last.event),
        Some(Event::ExecutionCancelled { .. })
    )
}

/// Whether the event exists only because code ran.
const fn is_caused_by_code(event: &Event) -> bool {
    !matches!(
        event,
        Event::ExecutionStarted { .. }
            | Event::SignalDelivered { .. }
            | Event::CancelRequested { .. }
            | Event::ExecutionCancelled { .. }
    )
}

/// Environment of a replay: a fixed time, zeros for entropy, and log messages are dropped.
/// Everything a replay needs is in the journal.
struct ReplayWorld(Timestamp);

impl ExecutionEnvironment for ReplayWorld {
    fn now(&mut self) -> Timestamp {
        self.0
    }

    fn fill_entropy(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn log_message(&mut self, _: GuestLogLevel, _: &str) {}
}
