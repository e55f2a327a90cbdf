//! Checks of atomicity: every way in which a part of a commit can fail, combined with every kind of
//! valid part.

use super::prelude::*;
use crate::conformance::fixtures::{
    numbered_execution, queued_job_row, queued_task_row, reader_advance, reserved_item_row,
    signal_message_row,
};
use crate::tables::{JobRow, OutboxItemRow};
use crate::{ShardEpoch, ShardId};

/// A part of a commit that is valid on the state that [`prepare_store`] creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitPart {
    Journal,
    Insert,
    InsertOrKeep,
    Serial,
    Update,
    Delete,
    DeleteIfExists,
    ReaderAdvance,
    EventOfNewRun,
    EventOfKnownRun,
}

/// A part of a commit that must make the whole commit fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitFault {
    StaleFence,
    JournalTooShort,
    JournalTooLong,
    RowExists,
    NotUnique,
    StaleUpdate,
    UpdateOfMissingRow,
    UpdateNotUnique,
    StaleDelete,
    DeleteOfMissingRow,
    WrongReaderPosition,
    ReaderBackwards,
    ReaderBeyondTheEnd,
    ReaderInUnknownRun,
    ForeignRun,
    EventIdTaken,
    WrongKey,
    WrongValue,
    SameRowTwice,
}

/// The lists that a commit consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitList {
    Fences,
    Journals,
    Changes,
    ReaderAdvances,
    Events,
}

pub(super) const COMMIT_PARTS: [CommitPart; 10] = [
    CommitPart::Journal,
    CommitPart::Insert,
    CommitPart::InsertOrKeep,
    CommitPart::Serial,
    CommitPart::Update,
    CommitPart::Delete,
    CommitPart::DeleteIfExists,
    CommitPart::ReaderAdvance,
    CommitPart::EventOfNewRun,
    CommitPart::EventOfKnownRun,
];

const COMMIT_FAULTS: [CommitFault; 19] = [
    CommitFault::StaleFence,
    CommitFault::JournalTooShort,
    CommitFault::JournalTooLong,
    CommitFault::RowExists,
    CommitFault::NotUnique,
    CommitFault::StaleUpdate,
    CommitFault::UpdateOfMissingRow,
    CommitFault::UpdateNotUnique,
    CommitFault::StaleDelete,
    CommitFault::DeleteOfMissingRow,
    CommitFault::WrongReaderPosition,
    CommitFault::ReaderBackwards,
    CommitFault::ReaderBeyondTheEnd,
    CommitFault::ReaderInUnknownRun,
    CommitFault::ForeignRun,
    CommitFault::EventIdTaken,
    CommitFault::WrongKey,
    CommitFault::WrongValue,
    CommitFault::SameRowTwice,
];

impl CommitPart {
    const fn commit_list(self) -> CommitList {
        match self {
            Self::Journal => CommitList::Journals,
            Self::Insert
            | Self::InsertOrKeep
            | Self::Serial
            | Self::Update
            | Self::Delete
            | Self::DeleteIfExists => CommitList::Changes,
            Self::ReaderAdvance => CommitList::ReaderAdvances,
            Self::EventOfNewRun | Self::EventOfKnownRun => CommitList::Events,
        }
    }

    pub(super) fn add_to(self, commit: Commit) -> Commit {
        match self {
            Self::Journal => commit.append_journal(numbered_append(1, 2, 1)),
            Self::Insert => commit.insert(&queued_job_row("new")),
            Self::InsertOrKeep => commit.insert_or_keep(&queued_task_row(1, 1)),
            Self::Serial => commit.insert(&signal_message_row(1, Some("new"))),
            Self::Update => commit.update(
                &JobRow {
                    attempts: 5,
                    ..queued_job_row("updated")
                },
                1,
            ),
            Self::Delete => commit.delete(&queued_job_row("deleted"), 1),
            Self::DeleteIfExists => commit.delete_if_exists::<JobRow>(fixtures::record_key(
                &queued_job_row("deleted_if_exists"),
            )),
            Self::ReaderAdvance => {
                commit.advance_reader(reader_advance("r", RunEventReader::EventBus, 0, 3))
            }
            Self::EventOfNewRun => commit.append_events(step_events("new", 1, 2)),
            Self::EventOfKnownRun => commit.append_events(step_events("r", 4, 5)),
        }
    }
}

impl CommitFault {
    const fn commit_list(self) -> CommitList {
        match self {
            Self::StaleFence => CommitList::Fences,
            Self::JournalTooShort | Self::JournalTooLong => CommitList::Journals,
            Self::WrongReaderPosition
            | Self::ReaderBackwards
            | Self::ReaderBeyondTheEnd
            | Self::ReaderInUnknownRun => CommitList::ReaderAdvances,
            Self::ForeignRun | Self::EventIdTaken | Self::WrongKey => CommitList::Events,
            _ => CommitList::Changes,
        }
    }

    pub(super) fn add_to(self, commit: Commit) -> Commit {
        match self {
            Self::StaleFence => commit.fence_shard(ShardId(1), ShardEpoch(3)),
            Self::JournalTooShort => commit.append_journal(numbered_append(2, 1, 1)),
            Self::JournalTooLong => commit.append_journal(numbered_append(2, 3, 1)),
            Self::RowExists => commit.insert(&queued_job_row("known")),
            Self::NotUnique => commit.insert(&reserved_item_row("other", "taken")),
            Self::StaleUpdate => commit.update(&queued_job_row("known"), 2),
            Self::UpdateOfMissingRow => commit.update(&queued_job_row("absent"), 1),
            Self::UpdateNotUnique => commit.update(&reserved_item_row("free", "taken"), 1),
            Self::StaleDelete => commit.delete(&queued_job_row("known"), 2),
            Self::DeleteOfMissingRow => commit.delete(&queued_job_row("absent"), 1),
            Self::WrongReaderPosition => {
                commit.advance_reader(reader_advance("r", RunEventReader::Projector, 0, 2))
            }
            Self::ReaderBackwards => {
                commit.advance_reader(reader_advance("r", RunEventReader::Projector, 1, 0))
            }
            Self::ReaderBeyondTheEnd => {
                commit.advance_reader(reader_advance("r", RunEventReader::Projector, 1, 4))
            }
            Self::ReaderInUnknownRun => {
                commit.advance_reader(reader_advance("unknown", RunEventReader::Projector, 0, 0))
            }
            Self::ForeignRun => commit.append_events(vec![RunEventWrite {
                tenant_id: parse_id("other"),
                ..step_event("r", 9)
            }]),
            Self::EventIdTaken => commit.append_events(vec![RunEventWrite {
                event_id: step_event("r", 1).event_id,
                ..step_event("r", 9)
            }]),
            Self::WrongKey => commit.append_events(vec![RunEventWrite {
                step_id: Some(parse_id("other")),
                ..step_event("r", 9)
            }]),
            Self::WrongValue => commit.insert(&JobRow {
                lock_token: Some("\0".into()),
                ..queued_job_row("odd")
            }),
            Self::SameRowTwice => commit
                .insert(&queued_job_row("twin"))
                .insert(&queued_job_row("twin")),
        }
    }

    /// Returns the error that the store must report. `events` is the number of events that precede
    /// the fault in the commit.
    #[expect(
        clippy::too_many_lines,
        reason = "one scenario, or one list of cases, read from top to bottom"
    )]
    pub(super) fn expected_error(self, events: usize) -> Error {
        let table = JobRow::TABLE.name;
        let version = |name: &str, expected, found| {
            CommitConflict::RowVersion {
                table,
                key: fixtures::record_key(&queued_job_row(name)),
                expected,
                found,
            }
            .into()
        };
        let not_unique = || CommitConflict::NotUnique {
            table: OutboxItemRow::TABLE.name,
            columns: OutboxItemRow::TABLE.unique[0],
            key: fixtures::record_key(&reserved_item_row("holder", "taken")),
        };
        let length = |expected| CommitConflict::JournalLength {
            execution: numbered_execution(2),
            expected,
            found: 2,
        };
        let (run, reader, last) = (parse_id("r"), RunEventReader::Projector, run_sequence(3));
        match self {
            Self::StaleFence => CommitConflict::Fenced {
                shard: ShardId(1),
                held: ShardEpoch(4),
                given: ShardEpoch(3),
            }
            .into(),
            Self::JournalTooShort => length(1).into(),
            Self::JournalTooLong => length(3).into(),
            Self::RowExists => CommitConflict::RowExists {
                table,
                key: fixtures::record_key(&queued_job_row("known")),
            }
            .into(),
            Self::NotUnique | Self::UpdateNotUnique => not_unique().into(),
            Self::StaleUpdate | Self::StaleDelete => version("known", 2, 1),
            Self::UpdateOfMissingRow | Self::DeleteOfMissingRow => version("absent", 1, 0),
            Self::WrongReaderPosition => CommitConflict::ReaderPosition {
                run,
                reader,
                expected: run_sequence(0),
                found: run_sequence(1),
            }
            .into(),
            Self::ReaderBackwards => InvalidRequest::ReaderAdvance {
                run,
                reader,
                from: run_sequence(1),
                to: run_sequence(0),
                last,
            }
            .into(),
            Self::ReaderBeyondTheEnd => InvalidRequest::ReaderAdvance {
                run,
                reader,
                from: run_sequence(1),
                to: run_sequence(4),
                last,
            }
            .into(),
            Self::ReaderInUnknownRun => InvalidRequest::NoSuchRun(parse_id("unknown")).into(),
            Self::ForeignRun => CommitConflict::ForeignRun { index: events, run }.into(),
            Self::EventIdTaken => CommitConflict::EventIdTaken {
                index: events,
                event_id: step_event("r", 1).event_id,
            }
            .into(),
            Self::WrongKey => {
                let odd = RunEventWrite {
                    step_id: Some(parse_id("other")),
                    ..step_event("r", 9)
                };
                let mismatch = onward_runs::verify_idempotency_key(
                    &odd,
                    onward_runs::AcceptedKeyForms::V2Only,
                )
                .err();
                mismatch.map_or(Error::Closed, |mismatch| {
                    InvalidRequest::IdempotencyKey {
                        index: events,
                        mismatch,
                    }
                    .into()
                })
            }
            Self::WrongValue => {
                let reason = "text must not contain U+0000";
                InvalidRequest::Value {
                    table,
                    column: "lock_token",
                    reason,
                }
                .into()
            }
            Self::SameRowTwice => {
                InvalidRequest::TouchedTwice("row twin of job_queue".to_owned()).into()
            }
        }
    }
}

/// Creates the state that parts and faults refer to.
pub(super) async fn prepare_store(world: &CheckContext<'_>) -> CheckResult {
    let ground = Commit::new()
        .insert(&fixtures::shard_lease_row(1, 4))
        .append_journal(numbered_append(1, 0, 2))
        .append_journal(numbered_append(2, 0, 2))
        .insert(&queued_job_row("known"))
        .insert(&queued_job_row("updated"))
        .insert(&queued_job_row("deleted"))
        .insert(&queued_job_row("deleted_if_exists"))
        .insert(&reserved_item_row("holder", "taken"))
        .insert(&reserved_item_row("free", "free"))
        .insert(&signal_message_row(1, Some("known")))
        .append_events(step_events("r", 1, 3));
    world.commit(ground).await?;
    world
        .commit(Commit::new().advance_reader(reader_advance("r", RunEventReader::Projector, 0, 1)))
        .await?;
    Ok(())
}

/// Expects the commit to fail with the fault's error and nothing of it to be stored.
async fn expect_nothing_stored(
    world: &CheckContext<'_>,
    fault: CommitFault,
    commit: Commit,
    events_before: usize,
) -> CheckResult {
    prepare_store(world).await?;
    let before = world.dump_store().await?;
    expect_refused(
        world.commit(commit).await,
        fault.expected_error(events_before),
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let mut checks = Vec::from(COMMIT_PARTS.map(check_part_stored));
    for fault in COMMIT_FAULTS {
        checks.extend(COMMIT_PARTS.map(|part| check_fault_after(fault, part)));
        checks.extend(
            COMMIT_PARTS
                .into_iter()
                .filter(|part| part.commit_list() == fault.commit_list())
                .map(|part| check_fault_before(fault, part)),
        );
        checks.push(check_fault_among_all(fault));
    }
    checks
}

/// Converts `StaleFence` to `stale_fence`.
fn snake_case(name: &impl std::fmt::Debug) -> String {
    let mut snake = String::new();
    for char in format!("{name:?}").chars() {
        if char.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(char.to_lowercase());
    }
    snake
}

/// Control check: without it, the checks below could pass on a store that stores nothing.
fn check_part_stored(part: CommitPart) -> ConformanceCheck {
    let name = format!("without_a_fault_{}_is_stored", snake_case(&part));
    ConformanceCheck::new(Topic::Atomicity, name, move |world| {
        Box::pin(async move {
            prepare_store(world).await?;
            let before = world.dump_store().await?;
            world.commit(part.add_to(Commit::new())).await?;
            expect_different(
                "the stored data before and after",
                world.dump_store().await?,
                before,
            )
        })
    })
}

fn check_fault_after(fault: CommitFault, part: CommitPart) -> ConformanceCheck {
    let beside = if part.commit_list() == fault.commit_list() {
        "after"
    } else {
        "beside"
    };
    let name = format!(
        "{}_{beside}_{}_stores_nothing",
        snake_case(&fault),
        snake_case(&part)
    );
    ConformanceCheck::new(Topic::Atomicity, name, move |world| {
        let commit = part.add_to(Commit::new());
        let events_before = commit.events.len();
        Box::pin(expect_nothing_stored(
            world,
            fault,
            fault.add_to(commit),
            events_before,
        ))
    })
}

fn check_fault_before(fault: CommitFault, part: CommitPart) -> ConformanceCheck {
    let name = format!(
        "{}_before_{}_stores_nothing",
        snake_case(&fault),
        snake_case(&part)
    );
    ConformanceCheck::new(Topic::Atomicity, name, move |world| {
        Box::pin(expect_nothing_stored(
            world,
            fault,
            part.add_to(fault.add_to(Commit::new())),
            0,
        ))
    })
}

fn check_fault_among_all(fault: CommitFault) -> ConformanceCheck {
    let name = format!("{}_among_all_parts_stores_nothing", snake_case(&fault));
    ConformanceCheck::new(Topic::Atomicity, name, move |world| {
        let (first, last) = COMMIT_PARTS.split_at(4);
        let before = first
            .iter()
            .fold(Commit::new(), |commit, part| part.add_to(commit));
        let commit = last
            .iter()
            .fold(fault.add_to(before), |commit, part| part.add_to(commit));
        Box::pin(expect_nothing_stored(world, fault, commit, 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowChange;

    #[test]
    fn every_fault_is_an_error_of_its_own_list() {
        for fault in COMMIT_FAULTS {
            let commit = fault.add_to(Commit::new());
            let lists = [
                (CommitList::Fences, commit.fences.len()),
                (CommitList::Journals, commit.journals.len()),
                (CommitList::Changes, commit.changes.len()),
                (CommitList::ReaderAdvances, commit.reader_advances.len()),
                (CommitList::Events, commit.events.len()),
            ];
            assert!(
                lists
                    .iter()
                    .all(|(list, parts)| (*list == fault.commit_list()) == (*parts > 0)),
                "{fault:?}"
            );
        }
        assert!(
            COMMIT_FAULTS
                .iter()
                .all(|fault| fault.expected_error(0) != Error::Closed)
        );
        let inserted = CommitPart::Insert.add_to(Commit::new());
        assert!(matches!(inserted.changes[..], [RowChange::Insert { .. }]));
    }
}
