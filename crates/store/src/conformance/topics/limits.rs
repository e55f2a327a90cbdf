//! Checks of the size limits: every limit is tried at its maximum and at one more.

use std::sync::Arc;

use onward_runs::ExtraFields;

use super::prelude::*;
use crate::conformance::fixtures::{queued_job_row, reader_advance};
use crate::tables::JobRow;
use crate::{JournalAppend, ShardEpoch, ShardId, StoreLimits};

/// A limited quantity, and a commit that contains a given amount of it.
struct LimitCase {
    name: &'static str,
    what: &'static str,
    limits: fn(usize) -> StoreLimits,
    commit: fn(usize) -> Commit,
}

/// The limit that these checks set for sizes in bytes.
const BYTES_MAX: usize = 300;
/// The limit that these checks set for counts.
const COUNT_MAX: usize = 5;

const BYTE_CASES: [LimitCase; 5] = [
    LimitCase {
        name: "the_payload_of_an_event",
        what: "bytes of an event's payload",
        limits: event_limits,
        commit: |bytes| {
            Commit::new().append_events(vec![fixtures::with_payload(
                step_event("r", 1),
                &json_object_of_size(bytes),
            )])
        },
    },
    LimitCase {
        name: "the_unknown_members_of_an_event",
        what: "bytes of an event's payload",
        limits: event_limits,
        commit: |bytes| {
            Commit::new().append_events(vec![RunEventWrite {
                extra: extra_of_size(bytes),
                ..step_event("r", 1)
            }])
        },
    },
    LimitCase {
        name: "payload_and_unknown_members_together",
        what: "bytes of an event's payload",
        limits: event_limits,
        commit: |bytes| {
            let event = fixtures::with_payload(step_event("r", 1), &json_object_of_size(100));
            Commit::new().append_events(vec![RunEventWrite {
                extra: extra_of_size(bytes - 100),
                ..event
            }])
        },
    },
    LimitCase {
        name: "a_chunk_of_a_journal",
        what: "bytes of a journal append",
        limits: record_limits,
        commit: |bytes| {
            let large = JournalAppend {
                records: Arc::from(vec![7; bytes]),
                ..numbered_append(1, 0, 1)
            };
            Commit::new()
                .append_journal(numbered_append(2, 0, 1))
                .append_journal(large)
        },
    },
    LimitCase {
        name: "a_row",
        what: "bytes of a row",
        limits: record_limits,
        commit: |bytes| {
            let bare = JobRow {
                workspace_id: "".into(),
                ..queued_job_row("j")
            };
            let other: usize = bare.to_row().0.iter().map(ColumnValue::size_in_bytes).sum();
            Commit::new().insert(&JobRow {
                workspace_id: "x".repeat(bytes - other).into(),
                ..bare
            })
        },
    },
];

const COUNT_CASES: [LimitCase; 5] = [
    LimitCase {
        name: "the_fences_of_a_commit",
        what: "fences in a commit",
        limits: commit_limits,
        commit: |count| {
            numbers_up_to(count).fold(Commit::new(), |commit, shard| {
                commit.fence_shard(ShardId(shard), ShardEpoch::NONE)
            })
        },
    },
    LimitCase {
        name: "the_journals_of_a_commit",
        what: "journal appends in a commit",
        limits: commit_limits,
        commit: |count| {
            numbers_up_to(count).fold(Commit::new(), |commit, number| {
                commit.append_journal(numbered_append(to_byte(number), 0, 1))
            })
        },
    },
    LimitCase {
        name: "the_changes_of_a_commit",
        what: "changes in a commit",
        limits: commit_limits,
        commit: |count| {
            numbers_up_to(count).fold(Commit::new(), |commit, number| {
                commit.insert(&queued_job_row(&number.to_string()))
            })
        },
    },
    LimitCase {
        name: "the_reader_advances_of_a_commit",
        what: "reader advances in a commit",
        limits: commit_limits,
        commit: |count| {
            let moves = numbers_up_to(count).map(|number| {
                reader_advance(&format!("r{number}"), RunEventReader::EventBus, 0, 1)
            });
            moves.fold(Commit::new(), Commit::advance_reader)
        },
    },
    LimitCase {
        name: "the_events_of_a_commit",
        what: "run events in a commit",
        limits: commit_limits,
        commit: |count| {
            Commit::new().append_events(
                numbers_up_to(count)
                    .map(|number| step_event("r", number))
                    .collect(),
            )
        },
    },
];

fn event_limits(event_bytes_max: usize) -> StoreLimits {
    StoreLimits {
        event_bytes_max,
        ..StoreLimits::default()
    }
}

fn record_limits(record_bytes_max: usize) -> StoreLimits {
    StoreLimits {
        record_bytes_max,
        ..StoreLimits::default()
    }
}

fn commit_limits(changes_max: usize) -> StoreLimits {
    StoreLimits {
        changes_max,
        ..StoreLimits::default()
    }
}

fn numbers_up_to(count: usize) -> impl Iterator<Item = u32> {
    1..=u32::try_from(count).unwrap_or(u32::MAX)
}

fn to_byte(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Returns a JSON object of this length in bytes.
fn json_object_of_size(bytes: usize) -> String {
    format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8))
}

fn extra_of_size(bytes: usize) -> ExtraFields {
    ExtraFields::parse(&json_object_of_size(bytes)).unwrap_or_default()
}

super::checks!(fn written, Limits:
    each_list_of_a_commit_has_its_own_limit,
    the_default_limits_accept_a_large_event,
    the_default_limits_accept_a_large_chunk,
    lookup_text_of_512_bytes_is_accepted,
    lookup_text_of_513_bytes_is_rejected,
    an_append_without_events_is_rejected,
);

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let mut checks = written();
    for (max, limited) in BYTE_CASES
        .iter()
        .map(|it| (BYTES_MAX, it))
        .chain(COUNT_CASES.iter().map(|it| (COUNT_MAX, it)))
    {
        let name = format!("{}_may_be_at_the_limit", limited.name);
        checks.push(ConformanceCheck::new(Topic::Limits, name, move |world| {
            Box::pin(expect_accepted_at_limit(world, limited, max))
        }));
        let name = format!("{}_must_not_exceed_the_limit", limited.name);
        checks.push(ConformanceCheck::new(Topic::Limits, name, move |world| {
            Box::pin(expect_refused_over_limit(world, limited, max))
        }));
    }
    checks
}

/// Opens a store with these limits that contains only the runs that readers move in.
async fn open_with_limits<'a>(
    world: &CheckContext<'a>,
    limits: StoreLimits,
) -> Result<CheckContext<'a>, ConformanceFailure> {
    let world = world
        .open_another(StorePolicy {
            limits,
            ..StorePolicy::default()
        })
        .await?;
    for number in numbers_up_to(COUNT_MAX + 1) {
        world
            .append_event(step_event(&format!("r{number}"), 1))
            .await?;
    }
    Ok(world)
}

async fn expect_accepted_at_limit(
    world: &CheckContext<'_>,
    case: &LimitCase,
    max: usize,
) -> CheckResult {
    let world = open_with_limits(world, (case.limits)(max)).await?;
    world.commit((case.commit)(max)).await?;
    Ok(())
}

async fn expect_refused_over_limit(
    world: &CheckContext<'_>,
    case: &LimitCase,
    max: usize,
) -> CheckResult {
    let world = open_with_limits(world, (case.limits)(max)).await?;
    let before = world.dump_store().await?;
    let error = InvalidRequest::Limit {
        what: case.what,
        found: max + 1,
        limit: max,
    };
    expect_refused(world.commit((case.commit)(max + 1)).await, error)?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn each_list_of_a_commit_has_its_own_limit(world: &CheckContext<'_>) -> CheckResult {
    let world = open_with_limits(world, commit_limits(COUNT_MAX)).await?;
    let mut whole = Commit::new();
    for part in COUNT_CASES
        .iter()
        .map(|limited| (limited.commit)(COUNT_MAX))
    {
        whole.fences.extend(part.fences);
        whole.journals.extend(part.journals);
        whole.changes.extend(part.changes);
        whole.reader_advances.extend(part.reader_advances);
        whole.events.extend(part.events);
    }
    let receipt = world.commit(whole).await?;
    expect_same(
        "changes and events",
        (receipt.changes.len(), receipt.events.len()),
        (COUNT_MAX, COUNT_MAX),
    )
}

async fn the_default_limits_accept_a_large_event(world: &CheckContext<'_>) -> CheckResult {
    let large = fixtures::with_payload(
        step_event("r", 1),
        &json_object_of_size(StoreLimits::default().event_bytes_max),
    );
    world.append_event(large.clone()).await?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_holds("the log holds the event", kept == vec![large])
}

async fn the_default_limits_accept_a_large_chunk(world: &CheckContext<'_>) -> CheckResult {
    let records: Arc<[u8]> = (0..4_000_000_u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    world
        .commit(Commit::new().append_journal(JournalAppend {
            records: records.clone(),
            ..numbered_append(1, 0, 9)
        }))
        .await?;
    let kept: Vec<_> = world
        .read_journal(fixtures::numbered_execution(1), 0, 9)
        .await?
        .into_iter()
        .map(|chunk| chunk.records)
        .collect();
    expect_holds("the journal holds the chunk", kept == vec![records])
}

/// Returns text that compresses badly, because databases compress long values.
fn incompressible_text(seed: u64, bytes: usize) -> String {
    let mut draw = crate::conformance::SeededRng::new(seed);
    (0..bytes)
        .map(|_| char::from(b'!' + u8::try_from(draw.next_below(90)).unwrap_or(0)))
        .collect()
}

/// Returns an execution whose function and start key have this length in bytes.
fn execution_with_long_text(bytes: usize) -> crate::tables::ExecutionRow {
    let long = fixtures::running_execution_row(1, Some(&incompressible_text(1, bytes)));
    crate::tables::ExecutionRow {
        function: incompressible_text(2, bytes).as_str().into(),
        ..long
    }
}

async fn lookup_text_of_512_bytes_is_accepted(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&execution_with_long_text(512)))
        .await?;
    let row = world
        .read_row(
            crate::tables::ExecutionRow::TABLE,
            fixtures::record_key(&execution_with_long_text(512)),
        )
        .await?;
    expect_holds(
        "the row is stored as given",
        row.is_some_and(|stored| stored.row == execution_with_long_text(512).to_row()),
    )
}

async fn lookup_text_of_513_bytes_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    let reason = "text of a key, unique or index column must have at most 512 bytes";
    let error = InvalidRequest::Value {
        table: "executions",
        column: "function",
        reason,
    };
    expect_refused(
        world
            .commit(Commit::new().insert(&execution_with_long_text(513)))
            .await,
        error,
    )
}

async fn an_append_without_events_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    let empty = JournalAppend {
        count: 0,
        ..numbered_append(1, 0, 1)
    };
    expect_refused(
        world.commit(Commit::new().append_journal(empty)).await,
        InvalidRequest::EmptyAppend(fixtures::numbered_execution(1)),
    )
}
