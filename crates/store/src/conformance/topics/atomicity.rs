//! All of a commit or nothing: every way in which a part can fail, beside every kind of part that would not.

use futures_util::FutureExt as _;

use super::prelude::*;
use crate::conformance::sample::{execution, item, job, message, step, timer};
use crate::tables::{Job, OutboxItem, Timer};
use crate::{Epoch, Shard};

super::checks!(fn written, Atomicity:
    a_commit_of_every_kind_of_part_is_stored_whole,
    a_commit_of_nothing_is_accepted_and_stores_nothing,
    a_commit_repeated_as_it_was_changes_nothing,
    a_receipt_answers_part_by_part,
    the_first_guard_that_does_not_hold_is_the_answer,
    the_first_event_that_does_not_fit_is_the_answer,
    a_dropped_future_leaves_a_whole_commit_or_nothing,
    a_dropped_future_leaves_no_open_transaction,
    racing_commits_on_one_row_store_one_whole,
    racing_commits_over_the_same_rows_in_other_orders_all_end,
);

/// A part that can be stored, on the ground that [`lay`] lays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Journal,
    Insert,
    InsertOrKeep,
    Serial,
    Update,
    Delete,
    Remove,
    Move,
    EventOfNewRun,
    EventOfKnownRun,
}

/// A part that cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    StaleFence,
    JournalTooShort,
    JournalTooLong,
    RowExists,
    NotUnique,
    StaleUpdate,
    UpdateOfNothing,
    UpdateNotUnique,
    StaleDelete,
    DeleteOfNothing,
    WrongPosition,
    MoveBackwards,
    MoveBeyondTheEnd,
    MoveInUnknownRun,
    ForeignRun,
    EventIdTaken,
    WrongKey,
    WrongValue,
    SameRowTwice,
}

/// The lists that a commit is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Fences,
    Journals,
    Changes,
    Moves,
    Events,
}

const PARTS: [Part; 10] = [
    Part::Journal,
    Part::Insert,
    Part::InsertOrKeep,
    Part::Serial,
    Part::Update,
    Part::Delete,
    Part::Remove,
    Part::Move,
    Part::EventOfNewRun,
    Part::EventOfKnownRun,
];

const FAULTS: [Fault; 19] = [
    Fault::StaleFence,
    Fault::JournalTooShort,
    Fault::JournalTooLong,
    Fault::RowExists,
    Fault::NotUnique,
    Fault::StaleUpdate,
    Fault::UpdateOfNothing,
    Fault::UpdateNotUnique,
    Fault::StaleDelete,
    Fault::DeleteOfNothing,
    Fault::WrongPosition,
    Fault::MoveBackwards,
    Fault::MoveBeyondTheEnd,
    Fault::MoveInUnknownRun,
    Fault::ForeignRun,
    Fault::EventIdTaken,
    Fault::WrongKey,
    Fault::WrongValue,
    Fault::SameRowTwice,
];

impl Part {
    const fn list(self) -> List {
        match self {
            Self::Journal => List::Journals,
            Self::Insert | Self::InsertOrKeep | Self::Serial | Self::Update | Self::Delete | Self::Remove => {
                List::Changes
            }
            Self::Move => List::Moves,
            Self::EventOfNewRun | Self::EventOfKnownRun => List::Events,
        }
    }

    fn add(self, commit: Commit) -> Commit {
        match self {
            Self::Journal => commit.journal(append(1, 2, 1)),
            Self::Insert => commit.insert(&job("new")),
            Self::InsertOrKeep => commit.insert_or_keep(&timer(1, 1)),
            Self::Serial => commit.insert(&message(1, Some("new"))),
            Self::Update => commit.update(&Job { attempts: 5, ..job("updated") }, 1),
            Self::Delete => commit.delete(&job("deleted"), 1),
            Self::Remove => commit.remove::<Job>(sample::key_of(&job("removed"))),
            Self::Move => commit.advance(step("r", Reader::EventBus, 0, 3)),
            Self::EventOfNewRun => commit.events(events("new", 1, 2)),
            Self::EventOfKnownRun => commit.events(events("r", 4, 5)),
        }
    }
}

impl Fault {
    const fn list(self) -> List {
        match self {
            Self::StaleFence => List::Fences,
            Self::JournalTooShort | Self::JournalTooLong => List::Journals,
            Self::WrongPosition | Self::MoveBackwards | Self::MoveBeyondTheEnd | Self::MoveInUnknownRun => List::Moves,
            Self::ForeignRun | Self::EventIdTaken | Self::WrongKey => List::Events,
            _ => List::Changes,
        }
    }

    fn add(self, commit: Commit) -> Commit {
        match self {
            Self::StaleFence => commit.fence(Shard(1), Epoch(3)),
            Self::JournalTooShort => commit.journal(append(2, 1, 1)),
            Self::JournalTooLong => commit.journal(append(2, 3, 1)),
            Self::RowExists => commit.insert(&job("known")),
            Self::NotUnique => commit.insert(&item("other", "taken")),
            Self::StaleUpdate => commit.update(&job("known"), 2),
            Self::UpdateOfNothing => commit.update(&job("absent"), 1),
            Self::UpdateNotUnique => commit.update(&item("free", "taken"), 1),
            Self::StaleDelete => commit.delete(&job("known"), 2),
            Self::DeleteOfNothing => commit.delete(&job("absent"), 1),
            Self::WrongPosition => commit.advance(step("r", Reader::Projector, 0, 2)),
            Self::MoveBackwards => commit.advance(step("r", Reader::Projector, 1, 0)),
            Self::MoveBeyondTheEnd => commit.advance(step("r", Reader::Projector, 1, 4)),
            Self::MoveInUnknownRun => commit.advance(step("unknown", Reader::Projector, 0, 0)),
            Self::ForeignRun => commit.events(vec![RunEventWrite { tenant_id: id("other"), ..event("r", 9) }]),
            Self::EventIdTaken => {
                commit.events(vec![RunEventWrite { event_id: event("r", 1).event_id, ..event("r", 9) }])
            }
            Self::WrongKey => commit.events(vec![RunEventWrite { step_id: Some(id("other")), ..event("r", 9) }]),
            Self::WrongValue => commit.insert(&Job { lock_token: Some("\0".into()), ..job("odd") }),
            Self::SameRowTwice => commit.insert(&job("twin")).insert(&job("twin")),
        }
    }

    /// What the answer is; `events` of the same commit come before.
    fn error(self, events: usize) -> Error {
        let table = Job::TABLE.name;
        let version = |name: &str, expected, found| {
            Conflict::RowVersion { table, key: sample::key_of(&job(name)), expected, found }.into()
        };
        let not_unique = || Conflict::NotUnique {
            table: OutboxItem::TABLE.name,
            columns: OutboxItem::TABLE.unique[0],
            key: sample::key_of(&item("holder", "taken")),
        };
        let length = |expected| Conflict::JournalLength { execution: execution(2), expected, found: 2 };
        let (run, reader, last) = (id("r"), Reader::Projector, seq(3));
        match self {
            Self::StaleFence => Conflict::Fenced { shard: Shard(1), held: Epoch(4), given: Epoch(3) }.into(),
            Self::JournalTooShort => length(1).into(),
            Self::JournalTooLong => length(3).into(),
            Self::RowExists => Conflict::RowExists { table, key: sample::key_of(&job("known")) }.into(),
            Self::NotUnique | Self::UpdateNotUnique => not_unique().into(),
            Self::StaleUpdate | Self::StaleDelete => version("known", 2, 1),
            Self::UpdateOfNothing | Self::DeleteOfNothing => version("absent", 1, 0),
            Self::WrongPosition => Conflict::Position { run, reader, expected: seq(0), found: seq(1) }.into(),
            Self::MoveBackwards => Invalid::Move { run, reader, from: seq(1), to: seq(0), last }.into(),
            Self::MoveBeyondTheEnd => Invalid::Move { run, reader, from: seq(1), to: seq(4), last }.into(),
            Self::MoveInUnknownRun => Invalid::NoSuchRun(id("unknown")).into(),
            Self::ForeignRun => Conflict::ForeignRun { index: events, run }.into(),
            Self::EventIdTaken => Conflict::EventIdTaken { index: events, event_id: event("r", 1).event_id }.into(),
            Self::WrongKey => {
                let odd = RunEventWrite { step_id: Some(id("other")), ..event("r", 9) };
                let mismatch = onward_runs::verify(&odd, onward_runs::Accept::V2Only).err();
                mismatch.map_or(Error::Closed, |mismatch| Invalid::IdempotencyKey { index: events, mismatch }.into())
            }
            Self::WrongValue => {
                let reason = "text cannot hold U+0000";
                Invalid::Value { table, column: "lock_token", reason }.into()
            }
            Self::SameRowTwice => Invalid::Twice("row twin of job_queue".to_owned()).into(),
        }
    }
}

/// The ground for parts and faults.
async fn lay(world: &World<'_>) -> Verdict {
    let ground = Commit::new()
        .insert(&sample::lease(1, 4))
        .journal(append(1, 0, 2))
        .journal(append(2, 0, 2))
        .insert(&job("known"))
        .insert(&job("updated"))
        .insert(&job("deleted"))
        .insert(&job("removed"))
        .insert(&item("holder", "taken"))
        .insert(&item("free", "free"))
        .insert(&message(1, Some("known")))
        .events(events("r", 1, 3));
    world.commit(ground).await?;
    world.commit(Commit::new().advance(step("r", Reader::Projector, 0, 1))).await?;
    Ok(())
}

/// The fault is the answer, and nothing of the commit is stored.
async fn leaves_nothing(world: &World<'_>, fault: Fault, commit: Commit, events_before: usize) -> Verdict {
    lay(world).await?;
    let before = world.dump().await?;
    refused(world.commit(commit).await, fault.error(events_before))?;
    same("what is stored", world.dump().await?, before)
}

pub(super) fn checks() -> Vec<Check> {
    let mut checks = written();
    checks.extend(PARTS.map(stored_alone));
    for fault in FAULTS {
        checks.extend(PARTS.map(|part| fault_after(fault, part)));
        checks
            .extend(PARTS.into_iter().filter(|part| part.list() == fault.list()).map(|part| fault_before(fault, part)));
        checks.push(fault_among_all(fault));
    }
    checks
}

/// `StaleFence` as `stale_fence`.
fn snake(name: &impl std::fmt::Debug) -> String {
    let mut snake = String::new();
    for char in format!("{name:?}").chars() {
        if char.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(char.to_lowercase());
    }
    snake
}

/// Without this, the checks below could pass on a store that stores nothing.
fn stored_alone(part: Part) -> Check {
    let name = format!("without_a_fault_{}_is_stored", snake(&part));
    Check::new(Topic::Atomicity, name, move |world| {
        Box::pin(async move {
            lay(world).await?;
            let before = world.dump().await?;
            world.commit(part.add(Commit::new())).await?;
            differs("what is stored before and after", world.dump().await?, before)
        })
    })
}

fn fault_after(fault: Fault, part: Part) -> Check {
    let beside = if part.list() == fault.list() { "after" } else { "beside" };
    let name = format!("{}_{beside}_{}_leaves_nothing", snake(&fault), snake(&part));
    Check::new(Topic::Atomicity, name, move |world| {
        let commit = part.add(Commit::new());
        let events_before = commit.events.len();
        Box::pin(leaves_nothing(world, fault, fault.add(commit), events_before))
    })
}

fn fault_before(fault: Fault, part: Part) -> Check {
    let name = format!("{}_before_{}_leaves_nothing", snake(&fault), snake(&part));
    Check::new(Topic::Atomicity, name, move |world| {
        Box::pin(leaves_nothing(world, fault, part.add(fault.add(Commit::new())), 0))
    })
}

fn fault_among_all(fault: Fault) -> Check {
    let name = format!("{}_in_the_midst_of_everything_leaves_nothing", snake(&fault));
    Check::new(Topic::Atomicity, name, move |world| {
        let (first, last) = PARTS.split_at(4);
        let before = first.iter().fold(Commit::new(), |commit, part| part.add(commit));
        let commit = last.iter().fold(fault.add(before), |commit, part| part.add(commit));
        Box::pin(leaves_nothing(world, fault, commit, 0))
    })
}

async fn a_commit_of_every_kind_of_part_is_stored_whole(world: &World<'_>) -> Verdict {
    lay(world).await?;
    world.commit(PARTS.iter().fold(Commit::new().fence(Shard(1), Epoch(4)), |commit, part| part.add(commit))).await?;
    same("the chunks", world.journal(execution(1), 0, 9).await?.len(), 2)?;
    let row = |name: &str| world.row(Job::TABLE, sample::key_of(&job(name)));
    holds("the inserted row is there", row("new").await?.is_some())?;
    holds("the kept row is there", world.row(Timer::TABLE, sample::key_of(&timer(1, 1))).await?.is_some())?;
    same("the version of the updated row", row("updated").await?.map(|stored| stored.version), Some(2))?;
    same("the deleted row", row("deleted").await?, None)?;
    same("the removed row", row("removed").await?, None)?;
    let head = world.head("r").await?;
    let positions = (head.last_seq, head.projected_seq, head.delivered_seq);
    same("last place and positions", positions, (seq(5), seq(1), seq(3)))?;
    same("the places in the new run", world.places("new", 0, 9).await?, vec![1, 2])
}

async fn a_commit_of_nothing_is_accepted_and_stores_nothing(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let before = world.dump().await?;
    same("the receipt", world.commit(Commit::new()).await?, crate::Receipt::default())?;
    same("what is stored", world.dump().await?, before)
}

async fn a_commit_repeated_as_it_was_changes_nothing(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let whole = PARTS.iter().fold(Commit::new().fence(Shard(1), Epoch(4)), |commit, part| part.add(commit));
    world.commit(whole.clone()).await?;
    let before = world.dump().await?;
    let conflict = Conflict::JournalLength { execution: execution(1), expected: 2, found: 3 };
    refused(world.commit(whole).await, conflict)?;
    same("what is stored", world.dump().await?, before)
}

async fn a_receipt_answers_part_by_part(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let commit = Commit::new()
        .insert_or_keep(&job("known"))
        .insert(&job("new"))
        .insert_or_keep(&item("other", "taken"))
        .delete(&job("deleted"), 1)
        .remove::<Job>(sample::key_of(&job("removed")))
        .remove::<Job>(sample::key_of(&job("absent")))
        .events(vec![event("r", 4), event("r", 2), event("r", 5)]);
    let receipt = world.commit(commit).await?;
    let kept = |row| Outcome::Kept(Stored { row, version: 1 });
    let holder = item("holder", "taken").to_row();
    let mut outcomes = vec![kept(job("known").to_row()), Outcome::Made, kept(holder)];
    outcomes.extend([Outcome::Made, Outcome::Made, Outcome::Made]);
    same("changes", receipt.changes, outcomes)?;
    let places: Vec<u64> = receipt.events.iter().map(|answer| answer.result.run_seq.get()).collect();
    same("places", places, vec![4, 2, 5])
}

async fn the_first_guard_that_does_not_hold_is_the_answer(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let in_order =
        [Fault::StaleFence, Fault::JournalTooLong, Fault::StaleUpdate, Fault::WrongPosition, Fault::EventIdTaken];
    for first in 0..in_order.len() {
        let rest = in_order[first..].iter().rev();
        let commit = rest.fold(Commit::new(), |commit, fault| fault.add(commit));
        refused(world.commit(commit).await, in_order[first].error(0))?;
    }
    Ok(())
}

async fn the_first_event_that_does_not_fit_is_the_answer(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let faults = [Fault::EventIdTaken, Fault::ForeignRun];
    for (first, second) in [(faults[0], faults[1]), (faults[1], faults[0])] {
        let commit = second.add(first.add(Commit::new().events(events("r", 4, 5))));
        refused(world.commit(commit).await, first.error(2))?;
    }
    Ok(())
}

/// Polls a commit once and drops it.
async fn dropped(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let commit = Commit::new().journal(append(1, 2, 1)).insert(&job("new")).events(events("new", 1, 2));
    drop(world.commit(commit).now_or_never());
    Ok(())
}

async fn a_dropped_future_leaves_a_whole_commit_or_nothing(world: &World<'_>) -> Verdict {
    dropped(world).await?;
    // It may still be stored while we look. What comes with a part that is seen must be seen afterwards.
    let row = |name: &str| world.row(Job::TABLE, sample::key_of(&job(name)));
    for _ in 0..20 {
        if row("new").await?.is_some() {
            same("the chunks", world.journal(execution(1), 0, 9).await?.len(), 2)?;
        }
        if world.journal(execution(1), 0, 9).await?.len() == 2 {
            same("the places in the new run", world.places("new", 0, 9).await?, vec![1, 2])?;
        }
        if world.run(&id("new")).await?.is_some() {
            holds("the row is there", row("new").await?.is_some())?;
        }
    }
    Ok(())
}

async fn a_dropped_future_leaves_no_open_transaction(world: &World<'_>) -> Verdict {
    for number in 10..14 {
        let commit = Commit::new().insert(&job(&format!("dropped-{number}"))).events(events("dropped", number, number));
        drop(world.commit(commit).now_or_never());
    }
    world.commit(Commit::new().insert(&job("next")).events(events("r", 1, 1))).await?;
    let pair = world.pair().await?;
    let seen = pair.other().row(Job::TABLE, sample::key_of(&job("next"))).await?;
    holds("the next commit is seen by all", seen.is_some())
}

async fn racing_commits_on_one_row_store_one_whole(world: &World<'_>) -> Verdict {
    lay(world).await?;
    let pair = world.pair().await?;
    let racer = |nth: usize| {
        let name = format!("by-{nth}");
        let attempts = u32::try_from(nth).unwrap_or(0);
        Commit::new().update(&Job { attempts, ..job("known") }, 1).insert(&job(&name)).events(events(&name, 1, 1))
    };
    let answers = pair.race(16, |store, nth| store.commit(racer(nth))).await;
    let winner = some("a winner", answers.iter().position(Result::is_ok))?;
    same("how many won", answers.iter().filter(|answer| answer.is_ok()).count(), 1)?;
    let rows = crate::conformance::dump::rows(world.store(), Job::TABLE).await?;
    let added: Vec<_> =
        rows.iter().filter(|stored| matches!(&stored.row.0[0], Value::Text(name) if name.starts_with("by-"))).collect();
    same("what the winner and the losers added", added.len(), 1)?;
    let runs = world.runs(None, None, 99).await?.into_iter().map(|head| head.run_id).collect::<Vec<_>>();
    same("the runs", runs, vec![id(&format!("by-{winner}")), id("r")])
}

async fn racing_commits_over_the_same_rows_in_other_orders_all_end(world: &World<'_>) -> Verdict {
    let names = ["a", "b", "c", "d"];
    world.commit(names.iter().fold(Commit::new(), |commit, name| commit.insert(&job(name)))).await?;
    let pair = world.pair().await?;
    for version in 1..=4 {
        let racer = |nth: usize| {
            let mut commit = names.iter().fold(Commit::new(), |commit, name| commit.update(&job(name), version));
            commit.changes.rotate_left(nth % 4);
            commit
        };
        let answers = pair.race(8, |store, nth| store.commit(racer(nth))).await;
        same("how many won", answers.iter().filter(|answer| answer.is_ok()).count(), 1)?;
        let conflicts = answers.into_iter().filter_map(Result::err).filter(|error| error.kind() == Kind::Conflict);
        same("how many were told of a conflict", conflicts.count(), 7)?;
    }
    let versions: Vec<u64> =
        crate::conformance::dump::rows(world.store(), Job::TABLE).await?.iter().map(|stored| stored.version).collect();
    same("the versions", versions, vec![5; 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    #[test]
    fn every_fault_is_an_error_by_its_own_list() {
        for fault in FAULTS {
            let commit = fault.add(Commit::new());
            let lists = [
                (List::Fences, commit.fences.len()),
                (List::Journals, commit.journals.len()),
                (List::Changes, commit.changes.len()),
                (List::Moves, commit.moves.len()),
                (List::Events, commit.events.len()),
            ];
            assert!(lists.iter().all(|(list, parts)| (*list == fault.list()) == (*parts > 0)), "{fault:?}");
        }
        assert!(FAULTS.iter().all(|fault| fault.error(0) != Error::Closed));
        let inserted = Part::Insert.add(Commit::new());
        assert!(matches!(inserted.changes[..], [Change::Insert { .. }]));
    }
}
