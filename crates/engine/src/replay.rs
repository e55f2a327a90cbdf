//! Whether code repeats what a journal records. The journal is a copy in memory: whatever the code asks for, nothing is
//! stored and nothing is performed.

use onward_execution::{Divergence, Execution, Guest, Level, Limits, Progress, World};
use onward_journal::{ErrorKind, Event, Journal, JournalEvent, Timestamp, Violation};
use serde::Serialize;

use crate::waits;
use onward_api::waits::Waits;

/// How much code may ask for beyond the record: enough to see what it wants.
const BEYOND: u64 = 1_000;

/// What replaying came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Verdict {
    /// The code does what is recorded.
    Repeats {
        /// Where that ended.
        end: End,
    },
    /// The code does something else.
    Diverges {
        /// The sequence of the event that it does not repeat.
        sequence: u64,
        /// What is recorded, in words.
        recorded: String,
        /// What the code asked for, in words.
        asked: String,
    },
}

/// Where a replay that repeats its journal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "at", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum End {
    /// At the end of the execution.
    Over,
    /// At what it waits for.
    Waits(Waits),
    /// Beyond the journal: the code goes on where the record ends.
    Beyond {
        /// What it asks for first, in words.
        asked: String,
    },
    /// Before it began: it was cancelled without having run.
    NotBegun,
}

/// Runs `guest` against what is recorded.
pub fn replay(journal: &Journal, guest: &mut dyn Guest) -> Result<Verdict, Violation> {
    let events = journal.events();
    if !events.iter().any(|recorded| is_of_code(&recorded.event)) && was_cancelled(journal) {
        return Ok(Verdict::Repeats { end: End::NotBegun });
    }
    let last = events.last().filter(|_| journal.fold().phase().is_terminal());
    let known = events.len() - usize::from(last.is_some());
    let copy = Journal::recover(journal.fold().execution(), events[..known].to_vec())?;
    let limits = Limits { events_max: known as u64 + BEYOND, ..Limits::default() };
    let mut execution = Execution::recover(copy, limits);
    execution.rewind();
    let mut nowhere = Nowhere(events.last().map_or(Timestamp::EPOCH, |last| last.timestamp));
    let progress = loop {
        match execution.run(guest, &mut nowhere) {
            Ok(Progress::Paused | Progress::Full) => {}
            Ok(progress) => break progress,
            Err(violation) => return Ok(refused(&violation)),
        }
    };
    let journal = execution.journal();
    let beyond = journal.events().get(known);
    Ok(match (progress, last) {
        (Progress::Diverged(Divergence { sequence, recorded, asked }), _) => {
            Verdict::Diverges { sequence, recorded, asked }
        }
        (_, None) => Verdict::Repeats { end: open_end(journal, beyond) },
        (_, Some(last)) => compare(journal, last, beyond),
    })
}

/// Where the replay of a journal that is not over ended.
fn open_end(journal: &Journal, beyond: Option<&JournalEvent>) -> End {
    let own = journal.fold().execution();
    match beyond {
        None => End::Waits(waits::of(journal)),
        Some(first) => End::Beyond { asked: first.event.describe(own).to_string() },
    }
}

/// Whether the code ended as recorded in `last`.
fn compare(journal: &Journal, last: &JournalEvent, beyond: Option<&JournalEvent>) -> Verdict {
    let own = journal.fold().execution();
    let is_cancelled = matches!(last.event, Event::ExecutionCancelled { .. });
    let asked = match beyond {
        Some(end) if is_same_end(&last.event, &end.event) => return Verdict::Repeats { end: End::Over },
        // Cleanup that never returns does not keep an execution alive.
        None if is_cancelled => return Verdict::Repeats { end: End::Over },
        Some(other) => other.event.describe(own).to_string(),
        None => "nothing: it waits".to_owned(),
    };
    Verdict::Diverges { sequence: last.sequence, recorded: last.event.describe(own).to_string(), asked }
}

/// A trap says where in the code it happened; another build has another where.
fn is_same_end(recorded: &Event, repeated: &Event) -> bool {
    match (recorded, repeated) {
        (Event::ExecutionFailed { error: one }, Event::ExecutionFailed { error: other }) => {
            one == other || (one.kind == ErrorKind::Trap && other.kind == ErrorKind::Trap)
        }
        _ => recorded == repeated,
    }
}

/// A rule of the journal forbids what the code asks for: it cannot have asked for it when the journal was written.
fn refused(violation: &Violation) -> Verdict {
    let Violation { sequence, event, message, rule } = violation;
    let recorded = "nothing that could be followed by it".to_owned();
    Verdict::Diverges { sequence: *sequence, recorded, asked: format!("{event}, against rule {rule}: {message}") }
}

fn was_cancelled(journal: &Journal) -> bool {
    matches!(journal.events().last().map(|last| &last.event), Some(Event::ExecutionCancelled { .. }))
}

/// Whether the event is there because code ran.
const fn is_of_code(event: &Event) -> bool {
    !matches!(
        event,
        Event::ExecutionStarted { .. }
            | Event::SignalDelivered { .. }
            | Event::CancelRequested { .. }
            | Event::ExecutionCancelled { .. }
    )
}

/// A world without a clock, without entropy and without ears: all that a replay needs is in the journal.
struct Nowhere(Timestamp);

impl World for Nowhere {
    fn now(&mut self) -> Timestamp {
        self.0
    }

    fn entropy(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn log(&mut self, _: Level, _: &str) {}
}
