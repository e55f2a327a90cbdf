//! Removing a row, whatever is there: a removal always gets its way, alone, beside other changes and in races.

use super::prelude::*;
use crate::Change;
use crate::conformance::sample::{item, job, key_of, message, started, timer};
use crate::tables::{Execution, Job, Message, OutboxItem, Timer};

super::checks!(Rows:
    a_row_is_removed_whatever_its_version,
    removing_what_is_absent_changes_nothing_and_is_no_conflict,
    a_removal_takes_no_other_row_along,
    removing_the_row_of_an_execution_removes_nothing_else,
    what_was_removed_can_be_neither_updated_nor_deleted,
    what_was_removed_can_be_inserted_again,
    a_removal_frees_what_was_unique,
    a_removal_does_not_free_what_is_unique_for_its_own_commit,
    the_rest_of_a_commit_goes_on_beside_removals,
    a_removal_beside_another_change_of_its_row_is_refused,
    a_row_with_a_serial_is_removed_by_it,
    a_key_that_cannot_be_is_not_removed,
    racing_removals_all_get_their_way,
    a_removal_gets_its_way_among_racing_updates,
    removals_racing_inserts_of_two_tables_leave_both_rows_or_none,
);

fn removal(name: &str) -> Commit {
    Commit::new().remove::<Job>(key_of(&job(name)))
}

async fn job_row(world: &World<'_>, name: &str) -> Result<Option<(Job, u64)>, Failure> {
    Ok(world.get(key_of(&job(name))).await?)
}

async fn a_row_is_removed_whatever_its_version(world: &World<'_>) -> Verdict {
    for changes in 0..4 {
        world.commit(Commit::new().insert(&job("j"))).await?;
        for version in 1..=changes {
            world.commit(Commit::new().update(&job("j"), version)).await?;
        }
        same("the outcome", world.commit(removal("j")).await?.changes, vec![Outcome::Made])?;
        same("the row", job_row(world, "j").await?, None)?;
    }
    Ok(())
}

async fn removing_what_is_absent_changes_nothing_and_is_no_conflict(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j")).insert(&timer(1, 1))).await?;
    let before = world.dump().await?;
    let absent = removal("k").remove::<Timer>(key_of(&timer(1, 2))).remove::<Execution>(key_of(&started(1, None)));
    same("the outcome", world.commit(absent).await?.changes, vec![Outcome::Made; 3])?;
    same("what is stored", world.dump().await?, before)
}

async fn a_removal_takes_no_other_row_along(world: &World<'_>) -> Verdict {
    let timers = [timer(1, 1), timer(1, 2), timer(2, 1)];
    let ground = Commit::new().insert(&job("same")).insert(&item("same", "k"));
    world.commit(timers.iter().fold(ground, |commit, timer| commit.insert(timer))).await?;
    world.commit(removal("same").remove::<Timer>(key_of(&timers[1]))).await?;
    same("the item", world.get(key_of(&item("same", "k"))).await?, Some((item("same", "k"), 1)))?;
    let left: Vec<(Timer, u64)> = world.list(Scan::all::<Timer>()).await?;
    same("the timers", left, vec![(timer(1, 1), 1), (timer(2, 1), 1)])
}

async fn removing_the_row_of_an_execution_removes_nothing_else(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(1, 0, 2)).insert(&timer(1, 1)).insert(&message(1, None))).await?;
    let before = world.dump().await?;
    world.commit(Commit::new().insert(&started(1, None))).await?;
    world.commit(Commit::new().remove::<Execution>(key_of(&started(1, None)))).await?;
    same("what is stored", world.dump().await?, before)
}

async fn what_was_removed_can_be_neither_updated_nor_deleted(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    world.commit(removal("j")).await?;
    let conflict = || Conflict::RowVersion { table: Job::TABLE.name, key: key_of(&job("j")), expected: 1, found: 0 };
    refused(world.commit(Commit::new().update(&job("j"), 1)).await, conflict())?;
    refused(world.commit(Commit::new().delete(&job("j"), 1)).await, conflict())?;
    same("the row", job_row(world, "j").await?, None)
}

async fn what_was_removed_can_be_inserted_again(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    world.commit(Commit::new().update(&job("j"), 1)).await?;
    world.commit(removal("j")).await?;
    let again = Job { attempts: 7, ..job("j") };
    same("the outcome", world.commit(Commit::new().insert_or_keep(&again)).await?.changes, vec![Outcome::Made])?;
    same("the row", job_row(world, "j").await?, Some((again, 1)))
}

async fn a_removal_frees_what_was_unique(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one"))).await?;
    world.commit(Commit::new().remove::<OutboxItem>(key_of(&item("a", "one")))).await?;
    world.commit(Commit::new().insert(&item("b", "one"))).await?;
    Ok(())
}

async fn a_removal_does_not_free_what_is_unique_for_its_own_commit(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one"))).await?;
    let before = world.dump().await?;
    let key = key_of(&item("a", "one"));
    let exchange = Commit::new().remove::<OutboxItem>(key.clone()).insert(&item("b", "one"));
    let (table, columns) = (OutboxItem::TABLE.name, OutboxItem::TABLE.unique[0]);
    refused(world.commit(exchange).await, Conflict::NotUnique { table, columns, key })?;
    same("what is stored", world.dump().await?, before)
}

async fn the_rest_of_a_commit_goes_on_beside_removals(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("a")).insert(&job("b")).insert(&job("c"))).await?;
    let commit = removal("absent").insert(&job("d")).update(&job("a"), 1).remove::<Job>(key_of(&job("b")));
    world.commit(commit.delete(&job("c"), 1).journal(append(1, 0, 1)).events(events("r", 1, 2))).await?;
    let left: Vec<(Job, u64)> = world.list(Scan::all::<Job>()).await?;
    same("the rows", left, vec![(job("a"), 2), (job("d"), 1)])?;
    same("the places in the run", world.places("r", 0, 9).await?, vec![1, 2])
}

async fn a_removal_beside_another_change_of_its_row_is_refused(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let key = || key_of(&job("j"));
    let others = [
        Change::insert(&job("j")),
        Change::insert_or_keep(&job("j")),
        Change::update(&job("j"), 1),
        Change::delete(&job("j"), 1),
        Change::remove::<Job>(key()),
    ];
    for other in others {
        let (mut before, mut after) = (Commit::new(), removal("j"));
        before.changes = vec![other.clone(), Change::remove::<Job>(key())];
        after.changes.push(other);
        for commit in [before, after] {
            refused(world.commit(commit).await, Invalid::Twice("row j of job_queue".to_owned()))?;
        }
    }
    same("the row", job_row(world, "j").await?, Some((job("j"), 1)))
}

async fn a_row_with_a_serial_is_removed_by_it(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&message(1, Some("a"))).insert(&message(1, Some("b")))).await?;
    let sent: Vec<(Message, u64)> = world.list(Scan::all::<Message>()).await?;
    same("how many there are", sent.len(), 2)?;
    let send_too = Commit::new().insert(&message(1, Some("c")));
    world.commit(send_too.remove::<Message>(key_of(&sent[1].0))).await?;
    let left: Vec<(Message, u64)> = world.list(Scan::all::<Message>()).await?;
    let keys: Vec<_> = left.iter().filter_map(|(message, _)| message.dedup_key.clone()).collect();
    same("the keys of those left", keys, vec!["a".into(), "c".into()])?;
    holds("the number is not given again", left[1].0.message_id > sent[1].0.message_id)
}

async fn a_key_that_cannot_be_is_not_removed(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let misfits = [
        (vec![Value::Null], "a value is required"),
        (vec![Value::Int(1)], "the value is of another type"),
        (vec![Value::Text("\0".into())], "text cannot hold U+0000"),
        (vec![Value::Text("x".repeat(513).into())], "text that rows are found by has at most 512 bytes"),
        (vec![], "no value is given"),
        (vec![Value::Text("j".into()), Value::Int(1)], "there are more values than columns"),
    ];
    for (values, reason) in misfits {
        let answer = world.commit(Commit::new().remove::<Job>(Key(values))).await;
        refused(answer, Invalid::Value { table: Job::TABLE.name, column: "id", reason })?;
    }
    same("the row", job_row(world, "j").await?, Some((job("j"), 1)))
}

async fn racing_removals_all_get_their_way(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let pair = world.pair().await?;
    for answer in pair.race(16, |store, _| store.commit(removal("j"))).await {
        same("the outcome", answer?.changes, vec![Outcome::Made])?;
    }
    same("the row", job_row(world, "j").await?, None)
}

async fn a_removal_gets_its_way_among_racing_updates(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for round in 0..8 {
        world.commit(Commit::new().insert(&job("j"))).await?;
        let is_removal = |nth: usize| nth == round;
        let racer = |nth: usize| if is_removal(nth) { removal("j") } else { Commit::new().update(&job("j"), 1) };
        let answers = pair.race(8, |store, nth| store.commit(racer(nth))).await;
        let (removed, updated): (Vec<_>, Vec<_>) =
            answers.into_iter().enumerate().partition(|(nth, _)| is_removal(*nth));
        for (_, answer) in removed {
            same("the outcome", answer?.changes, vec![Outcome::Made])?;
        }
        holds("at most one update was made", updated.iter().filter(|(_, answer)| answer.is_ok()).count() <= 1)?;
        let refusals = updated.into_iter().filter_map(|(_, answer)| answer.err());
        holds("the others conflict", refusals.map(|error| error.kind()).all(|kind| kind == Kind::Conflict))?;
        same("the row", job_row(world, "j").await?, None)?;
    }
    Ok(())
}

async fn removals_racing_inserts_of_two_tables_leave_both_rows_or_none(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for _ in 0..8 {
        let racer = |nth: usize| match nth % 4 {
            0 | 1 => Commit::new().insert(&job("j")).insert(&timer(1, 1)),
            _ => removal("j").remove::<Timer>(key_of(&timer(1, 1))),
        };
        let answers = pair.race(12, |store, nth| store.commit(racer(nth))).await;
        for (nth, answer) in answers.into_iter().enumerate() {
            holds("no removal is refused", answer.is_ok() || nth % 4 < 2)?;
        }
        let has_timer = world.row(Timer::TABLE, key_of(&timer(1, 1))).await?.is_some();
        same("whether the rows are there", has_timer, job_row(world, "j").await?.is_some())?;
    }
    Ok(())
}
