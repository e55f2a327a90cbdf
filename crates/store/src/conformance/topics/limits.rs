//! How much is too much: every limit is tried with as much as it allows, and with one more.

use std::sync::Arc;

use onward_runs::Extra;

use super::prelude::*;
use crate::conformance::sample::{job, step};
use crate::tables::Job;
use crate::{Epoch, JournalAppend, Limits, Shard};

/// Something that is limited, and a commit that holds so much of it.
struct Limited {
    name: &'static str,
    what: &'static str,
    limits: fn(usize) -> Limits,
    commit: fn(usize) -> Commit,
}

/// What the limit is in these checks.
const MAX: usize = 300;
/// What the limit is where things are counted.
const COUNT_MAX: usize = 5;

const BYTES: [Limited; 5] = [
    Limited {
        name: "the_payload_of_an_event",
        what: "bytes of an event's payload",
        limits: of_event,
        commit: |bytes| Commit::new().events(vec![sample::carrying(event("r", 1), &object(bytes))]),
    },
    Limited {
        name: "the_unknown_members_of_an_event",
        what: "bytes of an event's payload",
        limits: of_event,
        commit: |bytes| Commit::new().events(vec![RunEventWrite { extra: extra(bytes), ..event("r", 1) }]),
    },
    Limited {
        name: "payload_and_unknown_members_together",
        what: "bytes of an event's payload",
        limits: of_event,
        commit: |bytes| {
            let event = sample::carrying(event("r", 1), &object(100));
            Commit::new().events(vec![RunEventWrite { extra: extra(bytes - 100), ..event }])
        },
    },
    Limited {
        name: "a_chunk_of_a_journal",
        what: "bytes of a journal append",
        limits: of_record,
        commit: |bytes| {
            let large = JournalAppend { records: Arc::from(vec![7; bytes]), ..append(1, 0, 1) };
            Commit::new().journal(append(2, 0, 1)).journal(large)
        },
    },
    Limited {
        name: "a_row",
        what: "bytes of a row",
        limits: of_record,
        commit: |bytes| {
            let bare = Job { workspace_id: "".into(), ..job("j") };
            let other: usize = bare.to_row().0.iter().map(Value::bytes).sum();
            Commit::new().insert(&Job { workspace_id: "x".repeat(bytes - other).into(), ..bare })
        },
    },
];

const COUNTS: [Limited; 5] = [
    Limited {
        name: "the_fences_of_a_commit",
        what: "fences in a commit",
        limits: of_commit,
        commit: |count| numbers(count).fold(Commit::new(), |commit, shard| commit.fence(Shard(shard), Epoch::NONE)),
    },
    Limited {
        name: "the_journals_of_a_commit",
        what: "journal appends in a commit",
        limits: of_commit,
        commit: |count| numbers(count).fold(Commit::new(), |commit, number| commit.journal(append(byte(number), 0, 1))),
    },
    Limited {
        name: "the_changes_of_a_commit",
        what: "changes in a commit",
        limits: of_commit,
        commit: |count| numbers(count).fold(Commit::new(), |commit, number| commit.insert(&job(&number.to_string()))),
    },
    Limited {
        name: "the_moves_of_a_commit",
        what: "moves in a commit",
        limits: of_commit,
        commit: |count| {
            let moves = numbers(count).map(|number| step(&format!("r{number}"), Reader::EventBus, 0, 1));
            moves.fold(Commit::new(), Commit::advance)
        },
    },
    Limited {
        name: "the_events_of_a_commit",
        what: "run events in a commit",
        limits: of_commit,
        commit: |count| Commit::new().events(numbers(count).map(|number| event("r", number)).collect()),
    },
];

fn of_event(event_bytes_max: usize) -> Limits {
    Limits { event_bytes_max, ..Limits::default() }
}

fn of_record(record_bytes_max: usize) -> Limits {
    Limits { record_bytes_max, ..Limits::default() }
}

fn of_commit(changes_max: usize) -> Limits {
    Limits { changes_max, ..Limits::default() }
}

fn numbers(count: usize) -> impl Iterator<Item = u32> {
    1..=u32::try_from(count).unwrap_or(u32::MAX)
}

fn byte(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// A JSON object of so many bytes.
fn object(bytes: usize) -> String {
    format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8))
}

fn extra(bytes: usize) -> Extra {
    Extra::parse(&object(bytes)).unwrap_or_default()
}

super::checks!(fn written, Limits:
    every_list_of_a_commit_is_counted_by_itself,
    the_usual_limits_let_a_large_event_pass,
    the_usual_limits_let_a_large_chunk_pass,
    text_that_rows_are_found_by_may_have_512_bytes,
    text_that_rows_are_found_by_may_not_have_513_bytes,
    an_append_without_events_is_refused,
);

pub(super) fn checks() -> Vec<Check> {
    let mut checks = written();
    for (max, limited) in BYTES.iter().map(|it| (MAX, it)).chain(COUNTS.iter().map(|it| (COUNT_MAX, it))) {
        let name = format!("{}_may_reach_the_limit", limited.name);
        checks.push(Check::new(Topic::Limits, name, move |world| Box::pin(at_limit(world, limited, max))));
        let name = format!("{}_may_not_pass_the_limit", limited.name);
        checks.push(Check::new(Topic::Limits, name, move |world| Box::pin(over_limit(world, limited, max))));
    }
    checks
}

/// An empty store with a limit, but for the runs that readers move in.
async fn limited<'a>(world: &World<'a>, limits: Limits) -> Result<World<'a>, Failure> {
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    for number in numbers(COUNT_MAX + 1) {
        world.append_event(event(&format!("r{number}"), 1)).await?;
    }
    Ok(world)
}

async fn at_limit(world: &World<'_>, case: &Limited, max: usize) -> Verdict {
    let world = limited(world, (case.limits)(max)).await?;
    world.commit((case.commit)(max)).await?;
    Ok(())
}

async fn over_limit(world: &World<'_>, case: &Limited, max: usize) -> Verdict {
    let world = limited(world, (case.limits)(max)).await?;
    let before = world.dump().await?;
    let error = Invalid::Limit { what: case.what, found: max + 1, limit: max };
    refused(world.commit((case.commit)(max + 1)).await, error)?;
    same("what is stored", world.dump().await?, before)
}

async fn every_list_of_a_commit_is_counted_by_itself(world: &World<'_>) -> Verdict {
    let world = limited(world, of_commit(COUNT_MAX)).await?;
    let mut whole = Commit::new();
    for part in COUNTS.iter().map(|limited| (limited.commit)(COUNT_MAX)) {
        whole.fences.extend(part.fences);
        whole.journals.extend(part.journals);
        whole.changes.extend(part.changes);
        whole.moves.extend(part.moves);
        whole.events.extend(part.events);
    }
    let receipt = world.commit(whole).await?;
    same("changes and events", (receipt.changes.len(), receipt.events.len()), (COUNT_MAX, COUNT_MAX))
}

async fn the_usual_limits_let_a_large_event_pass(world: &World<'_>) -> Verdict {
    let large = sample::carrying(event("r", 1), &object(Limits::default().event_bytes_max));
    world.append_event(large.clone()).await?;
    let kept: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    holds("the log holds the event", kept == vec![large])
}

async fn the_usual_limits_let_a_large_chunk_pass(world: &World<'_>) -> Verdict {
    let records: Arc<[u8]> = (0..4_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    world.commit(Commit::new().journal(JournalAppend { records: records.clone(), ..append(1, 0, 9) })).await?;
    let kept: Vec<_> =
        world.journal(sample::execution(1), 0, 9).await?.into_iter().map(|chunk| chunk.records).collect();
    holds("the journal holds the chunk", kept == vec![records])
}

/// Letters that cannot be packed into fewer bytes by much: databases try.
fn letters(seed: u64, bytes: usize) -> String {
    let mut draw = crate::conformance::Draw::new(seed);
    (0..bytes).map(|_| char::from(b'!' + u8::try_from(draw.below(90)).unwrap_or(0))).collect()
}

/// An execution whose function and start key are as long as said.
fn wordy(bytes: usize) -> crate::tables::Execution {
    let long = sample::started(1, Some(&letters(1, bytes)));
    crate::tables::Execution { function: letters(2, bytes).as_str().into(), ..long }
}

async fn text_that_rows_are_found_by_may_have_512_bytes(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&wordy(512))).await?;
    let row = world.row(crate::tables::Execution::TABLE, sample::key_of(&wordy(512))).await?;
    holds("the row is there as it was given", row.is_some_and(|stored| stored.row == wordy(512).to_row()))
}

async fn text_that_rows_are_found_by_may_not_have_513_bytes(world: &World<'_>) -> Verdict {
    let reason = "text that rows are found by has at most 512 bytes";
    let error = Invalid::Value { table: "executions", column: "function", reason };
    refused(world.commit(Commit::new().insert(&wordy(513))).await, error)
}

async fn an_append_without_events_is_refused(world: &World<'_>) -> Verdict {
    let empty = JournalAppend { count: 0, ..append(1, 0, 1) };
    refused(world.commit(Commit::new().journal(empty)).await, Invalid::Append(sample::execution(1)))
}
