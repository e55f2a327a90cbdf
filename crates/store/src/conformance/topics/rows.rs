//! Rows by example: versions, what must be unique, numbers that the store assigns, and races for all of them.

use super::prelude::*;
use crate::conformance::dump;
use crate::conformance::sample::{alert, execution, item, job, key_of, message, started, timer};
use crate::tables::{Alert, Execution, Job, Message, OutboxItem, Timer};
use crate::{Change, Row, Serial};

super::checks!(Rows:
    an_absent_row_is_none,
    a_row_is_found_by_its_whole_key,
    tables_do_not_share_rows,
    deleting_the_row_of_an_execution_deletes_nothing_else,
    version_0_is_no_version_of_an_absent_row,
    a_key_never_conflicts_with_its_own_row,
    an_update_may_change_what_is_unique,
    an_update_frees_what_was_unique,
    a_delete_frees_what_was_unique,
    what_is_unique_is_judged_before_the_commit,
    a_row_with_nothing_in_a_unique_column_is_exempt,
    an_update_to_nothing_frees_what_was_unique,
    the_same_unique_values_beside_another_first_column_are_free,
    insert_or_keep_makes_a_row_that_is_absent,
    insert_or_keep_keeps_the_row_with_its_key,
    insert_or_keep_keeps_the_row_with_its_unique_values,
    insert_or_keep_answers_with_the_latest_version,
    a_row_that_clashes_twice_is_answered_by_the_one_with_its_key,
    an_insert_that_clashes_twice_is_told_of_its_key,
    serials_grow,
    serials_follow_the_order_of_the_commit,
    a_serial_is_not_repeated_when_the_last_row_is_deleted,
    a_serial_is_not_repeated_when_all_rows_are_deleted,
    a_kept_row_with_a_serial_shows_it,
    rows_with_a_serial_and_no_dedup_key_are_all_kept,
    a_row_with_a_serial_is_updated_by_it,
    a_serial_cannot_be_chosen,
    a_row_twice_in_one_commit_is_refused,
    the_same_unique_values_twice_in_one_commit_are_refused,
    a_missing_value_is_refused,
    a_value_of_another_type_is_refused,
    a_row_of_another_width_is_refused,
    a_message_for_an_unknown_execution_waits_visibly,
    a_reader_sees_what_another_handle_wrote,
    racing_inserts_of_one_key_have_one_winner,
    racing_starts_make_one_execution,
    racing_starts_under_other_ids_make_one_execution,
    racing_updates_of_one_version_have_one_winner,
    racing_amendments_of_one_version_have_one_winner,
    racing_deletes_have_one_winner,
    an_amendment_leaves_what_others_changed_alone,
    what_is_inserted_beside_an_amendment_is_judged_before_the_commit,
    a_stale_amendment_takes_the_whole_commit_along,
    a_stale_amendment_disturbs_no_other_commit,
    racing_messages_with_one_dedup_key_leave_one,
    racing_messages_all_get_a_serial_of_their_own,
);

async fn job_row(world: &World<'_>, name: &str) -> Result<Option<(Job, u64)>, Failure> {
    Ok(world.get(key_of(&job(name))).await?)
}

async fn messages(world: &World<'_>) -> Result<Vec<Message>, Failure> {
    Ok(world.list(Scan::all::<Message>()).await?.into_iter().map(|(message, _)| message).collect())
}

async fn serials(world: &World<'_>) -> Result<Vec<i64>, Failure> {
    Ok(messages(world).await?.into_iter().filter_map(|message| message.message_id.0).collect())
}

fn not_unique<R: Record>(holder: &R) -> Conflict {
    Conflict::NotUnique { table: R::TABLE.name, columns: R::TABLE.unique[0], key: key_of(holder) }
}

async fn an_absent_row_is_none(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    same("the row", job_row(world, "k").await?, None)?;
    same("an empty table", world.rows(Scan::all::<Timer>()).await?, Vec::new())
}

async fn a_row_is_found_by_its_whole_key(world: &World<'_>) -> Verdict {
    let timers = [timer(1, 1), timer(1, 2), timer(2, 1)];
    world.commit(timers.iter().fold(Commit::new(), |commit, timer| commit.insert(timer))).await?;
    for timer in timers {
        same("the row", world.get(key_of(&timer)).await?, Some((timer, 1)))?;
    }
    same("no such pair", world.row(Timer::TABLE, key_of(&timer(2, 2))).await?, None)
}

async fn tables_do_not_share_rows(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("same")).insert(&item("same", "k"))).await?;
    world.commit(Commit::new().delete(&job("same"), 1)).await?;
    same("the item", world.get(key_of(&item("same", "k"))).await?, Some((item("same", "k"), 1)))
}

async fn deleting_the_row_of_an_execution_deletes_nothing_else(world: &World<'_>) -> Verdict {
    let around = Commit::new().journal(sample::append(1, 0, 2)).insert(&timer(1, 1)).insert(&message(1, None));
    world.commit(around).await?;
    let before = world.dump().await?;
    world.commit(Commit::new().insert(&started(1, None))).await?;
    world.commit(Commit::new().delete(&started(1, None), 1)).await?;
    same("what is stored", world.dump().await?, before)
}

async fn version_0_is_no_version_of_an_absent_row(world: &World<'_>) -> Verdict {
    let conflict = || Conflict::RowVersion { table: Job::TABLE.name, key: key_of(&job("j")), expected: 0, found: 0 };
    refused(world.commit(Commit::new().update(&job("j"), 0)).await, conflict())?;
    refused(world.commit(Commit::new().delete(&job("j"), 0)).await, conflict())?;
    same("the row", job_row(world, "j").await?, None)
}

async fn a_key_never_conflicts_with_its_own_row(world: &World<'_>) -> Verdict {
    let execution = started(1, Some("order-1"));
    world.commit(Commit::new().insert(&execution)).await?;
    let parked = Execution { wake_at: at(9), ..execution };
    world.commit(Commit::new().update(&parked, 1)).await?;
    same("the row", world.get(key_of(&parked)).await?, Some((parked, 2)))
}

async fn an_update_may_change_what_is_unique(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one")).insert(&item("b", "two"))).await?;
    world.commit(Commit::new().update(&item("a", "three"), 1)).await?;
    let taken = world.commit(Commit::new().insert(&item("c", "three"))).await;
    refused(taken, not_unique(&item("a", "three")))?;
    refused(world.commit(Commit::new().update(&item("b", "three"), 1)).await, not_unique(&item("a", "three")))
}

async fn an_update_frees_what_was_unique(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one"))).await?;
    world.commit(Commit::new().update(&item("a", "two"), 1)).await?;
    world.commit(Commit::new().insert(&item("b", "one"))).await?;
    Ok(())
}

async fn a_delete_frees_what_was_unique(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one"))).await?;
    world.commit(Commit::new().delete(&item("a", "one"), 1)).await?;
    world.commit(Commit::new().insert(&item("b", "one"))).await?;
    Ok(())
}

async fn what_is_unique_is_judged_before_the_commit(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one")).insert(&item("b", "two"))).await?;
    let before = world.dump().await?;
    let exchange = Commit::new().delete(&item("a", "one"), 1).insert(&item("c", "one"));
    refused(world.commit(exchange).await, not_unique(&item("a", "one")))?;
    let swap = Commit::new().update(&item("a", "two"), 1).update(&item("b", "one"), 1);
    refused(world.commit(swap).await, not_unique(&item("b", "two")))?;
    same("what is stored", world.dump().await?, before)
}

async fn a_row_with_nothing_in_a_unique_column_is_exempt(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&started(1, None)).insert(&started(2, None))).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&started(3, None))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Made])
}

async fn an_update_to_nothing_frees_what_was_unique(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&started(1, Some("order")))).await?;
    world.commit(Commit::new().update(&started(1, None), 1)).await?;
    world.commit(Commit::new().insert(&started(2, Some("order")))).await?;
    refused(
        world.commit(Commit::new().update(&started(1, Some("order")), 2)).await,
        not_unique(&started(2, Some("order"))),
    )
}

async fn the_same_unique_values_beside_another_first_column_are_free(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&message(1, Some("key")))).await?;
    world.commit(Commit::new().insert(&message(2, Some("key"))).insert(&message(1, Some("other")))).await?;
    let holder = messages(world).await?.into_iter().find(|it| it.execution_id == message(2, None).execution_id);
    let holder = some("the message", holder)?;
    refused(world.commit(Commit::new().insert(&message(2, Some("key")))).await, not_unique(&holder))
}

async fn insert_or_keep_makes_a_row_that_is_absent(world: &World<'_>) -> Verdict {
    let receipt = world.commit(Commit::new().insert_or_keep(&job("j"))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Made])?;
    same("the row", job_row(world, "j").await?, Some((job("j"), 1)))
}

async fn insert_or_keep_keeps_the_row_with_its_key(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let other = Job { attempts: 9, ..job("j") };
    let receipt = world.commit(Commit::new().insert_or_keep(&other)).await?;
    let stored = Stored { row: job("j").to_row(), version: 1 };
    same("the outcome", receipt.changes, vec![Outcome::Kept(stored)])?;
    same("the row", job_row(world, "j").await?, Some((job("j"), 1)))
}

async fn insert_or_keep_keeps_the_row_with_its_unique_values(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&started(1, Some("order")))).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&started(2, Some("order")))).await?;
    let stored = Stored { row: started(1, Some("order")).to_row(), version: 1 };
    same("the outcome", receipt.changes, vec![Outcome::Kept(stored)])?;
    same("the row", world.row(Execution::TABLE, key_of(&started(2, None))).await?, None)
}

async fn insert_or_keep_answers_with_the_latest_version(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let latest = Job { attempts: 1, ..job("j") };
    world.commit(Commit::new().update(&latest, 1)).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&job("j"))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Kept(Stored { row: latest.to_row(), version: 2 })])
}

async fn a_row_that_clashes_twice_is_answered_by_the_one_with_its_key(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one")).insert(&item("b", "two"))).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&item("a", "two"))).await?;
    let stored = Stored { row: item("a", "one").to_row(), version: 1 };
    same("the outcome", receipt.changes, vec![Outcome::Kept(stored)])
}

async fn an_insert_that_clashes_twice_is_told_of_its_key(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one")).insert(&item("b", "two"))).await?;
    let key = key_of(&item("a", "two"));
    let answer = world.commit(Commit::new().insert(&item("a", "two"))).await;
    refused(answer, Conflict::RowExists { table: OutboxItem::TABLE.name, key })
}

async fn serials_grow(world: &World<'_>) -> Verdict {
    for _ in 0..12 {
        world.commit(Commit::new().insert(&message(1, None))).await?;
    }
    let serials = serials(world).await?;
    same("how many", serials.len(), 12)?;
    holds("each is larger than the one before", serials.is_sorted_by(|one, next| one < next))
}

async fn serials_follow_the_order_of_the_commit(world: &World<'_>) -> Verdict {
    let names = ["d", "a", "c", "b", "e"];
    world.commit(names.iter().fold(Commit::new(), |commit, name| commit.insert(&message(1, Some(name))))).await?;
    let found: Vec<_> = messages(world).await?.into_iter().filter_map(|message| message.dedup_key).collect();
    same("the keys in the order of their serials", found, names.map(Into::into).to_vec())
}

/// Inserts three messages, deletes the last `deleted`, and expects the next to come after all of them.
async fn no_serial_twice(world: &World<'_>, deleted: usize) -> Verdict {
    let three = Commit::new().insert(&message(1, None)).insert(&message(1, None)).insert(&message(1, None));
    world.commit(three).await?;
    let before = messages(world).await?;
    let largest = some("a serial", before.iter().filter_map(|message| message.message_id.0).max())?;
    let gone = before.iter().rev().take(deleted);
    world.commit(gone.fold(Commit::new(), |commit, message| commit.delete(message, 1))).await?;
    world.commit(Commit::new().insert(&message(1, None))).await?;
    let newest = serials(world).await?.pop().unwrap_or_default();
    holds(&format!("{newest} comes after {largest}, which was deleted"), newest > largest)
}

async fn a_serial_is_not_repeated_when_the_last_row_is_deleted(world: &World<'_>) -> Verdict {
    no_serial_twice(world, 1).await
}

async fn a_serial_is_not_repeated_when_all_rows_are_deleted(world: &World<'_>) -> Verdict {
    no_serial_twice(world, 3).await
}

async fn a_kept_row_with_a_serial_shows_it(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&alert("first")).insert(&alert("second"))).await?;
    let receipt = world.commit(Commit::new().insert_or_keep(&alert("second"))).await?;
    let rows = world.rows(Scan::all::<Alert>()).await?;
    let second = some("the second alert", rows.into_iter().nth(1))?;
    same("the outcome", receipt.changes, vec![Outcome::Kept(second)])
}

async fn rows_with_a_serial_and_no_dedup_key_are_all_kept(world: &World<'_>) -> Verdict {
    for _ in 0..3 {
        world.commit(Commit::new().insert_or_keep(&message(1, None))).await?;
    }
    let several = Commit::new().insert_or_keep(&message(1, None)).insert_or_keep(&message(1, None));
    world.commit(several).await?;
    same("how many", messages(world).await?.len(), 5)
}

async fn a_row_with_a_serial_is_updated_by_it(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&message(1, Some("a"))).insert(&message(1, Some("b")))).await?;
    let first = some("a message", messages(world).await?.into_iter().next())?;
    let changed = Message { sent_at: at(7), ..first };
    world.commit(Commit::new().update(&changed, 1)).await?;
    same("the row", world.get(key_of(&changed)).await?, Some((changed.clone(), 2)))?;
    same("the first row", messages(world).await?.into_iter().next(), Some(changed))
}

async fn a_serial_cannot_be_chosen(world: &World<'_>) -> Verdict {
    let chosen = Message { message_id: Serial(Some(7)), ..message(1, None) };
    let reason = "the store assigns it";
    let error = || Invalid::Value { table: Message::TABLE.name, column: "message_id", reason };
    refused(world.commit(Commit::new().insert(&chosen)).await, error())?;
    refused(world.commit(Commit::new().insert_or_keep(&chosen)).await, error())
}

async fn a_row_twice_in_one_commit_is_refused(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let twice = [Commit::new().insert_or_keep(&job("j")), Commit::new().update(&job("j"), 1)];
    for commit in twice {
        let answer = world.commit(commit.delete(&job("j"), 1)).await;
        refused(answer, Invalid::Twice("row j of job_queue".to_owned()))?;
    }
    same("the row", job_row(world, "j").await?, Some((job("j"), 1)))
}

async fn the_same_unique_values_twice_in_one_commit_are_refused(world: &World<'_>) -> Verdict {
    let twice = Commit::new().insert(&message(1, Some("key"))).insert_or_keep(&message(1, Some("key")));
    let what = "the same execution_id, dedup_key of inbox".to_owned();
    refused(world.commit(twice).await, Invalid::Twice(what))?;
    same("what is stored", messages(world).await?, Vec::new())
}

/// A job whose row is changed so that it no longer fits.
fn misfit(change: impl Fn(&mut Vec<Value>)) -> Commit {
    let Row(mut values) = job("j").to_row();
    change(&mut values);
    let mut commit = Commit::new();
    commit.changes.push(Change::Insert { table: Job::TABLE, row: Row(values) });
    commit
}

async fn a_missing_value_is_refused(world: &World<'_>) -> Verdict {
    for (place, column) in Job::TABLE.columns.iter().enumerate().filter(|(_, column)| !column.nullable) {
        let (table, column) = (Job::TABLE.name, column.name);
        let answer = world.commit(misfit(|values| values[place] = Value::Null)).await;
        refused(answer, Invalid::Value { table, column, reason: "a value is required" })?;
    }
    Ok(())
}

async fn a_value_of_another_type_is_refused(world: &World<'_>) -> Verdict {
    for (place, column) in Job::TABLE.columns.iter().enumerate() {
        let (table, column) = (Job::TABLE.name, column.name);
        let answer = world.commit(misfit(|values| values[place] = Value::Bool(true))).await;
        refused(answer, Invalid::Value { table, column, reason: "the value is of another type" })?;
    }
    Ok(())
}

async fn a_row_of_another_width_is_refused(world: &World<'_>) -> Verdict {
    let table = Job::TABLE.name;
    let narrow = world.commit(misfit(|values| drop(values.pop()))).await;
    refused(narrow, Invalid::Value { table, column: "created_at", reason: "no value is given" })?;
    let wide = world.commit(misfit(|values| values.push(Value::Null))).await;
    refused(wide, Invalid::Value { table, column: "id", reason: "there are more values than columns" })
}

async fn a_message_for_an_unknown_execution_waits_visibly(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&message(9, Some("key")))).await?;
    let scan = Scan::by::<Message>(Message::BY_SHARD).equal(&message(9, None).shard);
    let waiting: Vec<(Message, u64)> = world.list(scan).await?;
    same("for whom messages wait", waiting.iter().map(|(it, _)| it.execution_id).collect(), vec![execution(9)])
}

async fn a_reader_sees_what_another_handle_wrote(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for attempts in 0..10 {
        let name = format!("j{attempts}");
        pair.other().commit(Commit::new().insert(&job(&name))).await?;
        same("the row", job_row(world, &name).await?, Some((job(&name), 1)))?;
        world.commit(Commit::new().delete(&job(&name), 1)).await?;
        same("the row, seen by the other", pair.other().row(Job::TABLE, key_of(&job(&name))).await?, None)?;
    }
    Ok(())
}

/// Makes a commit sixteen times at once, and expects one to be stored and the others to conflict.
async fn one_winner(world: &World<'_>, commit: impl Fn(usize) -> Commit + Sync) -> Verdict {
    let pair = world.pair().await?;
    let answers = pair.race(16, |store, nth| store.commit(commit(nth))).await;
    same("how many were stored", answers.iter().filter(|answer| answer.is_ok()).count(), 1)?;
    let conflicts = answers.into_iter().filter_map(Result::err).filter(|error| error.kind() == Kind::Conflict);
    same("how many were told of a conflict", conflicts.count(), 15)
}

async fn racing_inserts_of_one_key_have_one_winner(world: &World<'_>) -> Verdict {
    one_winner(world, |_| Commit::new().insert(&job("j"))).await
}

async fn racing_updates_of_one_version_have_one_winner(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    one_winner(world, |_| Commit::new().update(&job("j"), 1)).await?;
    same("the version", job_row(world, "j").await?.map(|(_, version)| version), Some(2))
}

/// A job that has something to tell.
fn told(name: &str) -> Job {
    Job { error: Some("told".into()), ..job(name) }
}

async fn racing_amendments_of_one_version_have_one_winner(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    one_winner(world, |_| Commit::new().amend(&job("j"), &told("j"), 1)).await?;
    same("the row", job_row(world, "j").await?, Some((told("j"), 2)))
}

async fn an_amendment_leaves_what_others_changed_alone(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    world.commit(Commit::new().update(&Job { served: 7, ..job("j") }, 1)).await?;
    // Whoever amends may be wrong about what is not amended.
    world.commit(Commit::new().amend(&job("j"), &told("j"), 2)).await?;
    same("the row", job_row(world, "j").await?, Some((Job { served: 7, ..told("j") }, 3)))
}

async fn what_is_inserted_beside_an_amendment_is_judged_before_the_commit(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "one"))).await?;
    let sent = OutboxItem { status: "sent".into(), ..item("a", "one") };
    let amended = || Commit::new().amend(&item("a", "one"), &sent, 1);
    refused(world.commit(amended().insert(&item("b", "one"))).await, not_unique(&item("a", "one")))?;
    let kept = world.commit(amended().insert_or_keep(&item("b", "one"))).await?;
    let before = Stored { row: item("a", "one").to_row(), version: 1 };
    same("the outcomes", kept.changes, vec![Outcome::Made, Outcome::Kept(before)])?;
    same("the row", world.get(key_of(&sent)).await?, Some((sent, 2)))
}

async fn a_stale_amendment_takes_the_whole_commit_along(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j")).insert(&job("k"))).await?;
    world.commit(Commit::new().amend(&job("k"), &told("k"), 1)).await?;
    let before = world.dump().await?;
    let stale = Commit::new().insert(&job("l")).amend(&job("j"), &told("j"), 1).amend(&job("k"), &told("k"), 1);
    let conflict = Conflict::RowVersion { table: Job::TABLE.name, key: key_of(&job("k")), expected: 1, found: 2 };
    refused(world.commit(stale).await, conflict)?;
    same("what is stored", world.dump().await?, before)
}

async fn a_stale_amendment_disturbs_no_other_commit(world: &World<'_>) -> Verdict {
    const STALE: usize = 7;
    let name = |nth: usize| format!("j{nth:02}");
    world.commit((0..16).fold(Commit::new(), |commit, nth| commit.insert(&job(&name(nth))))).await?;
    let amended = |nth: usize| {
        let version = if nth == STALE { 2 } else { 1 };
        Commit::new().amend(&job(&name(nth)), &told(&name(nth)), version)
    };
    let answers = world.pair().await?.race(16, |store, nth| store.commit(amended(nth))).await;
    let refused: Vec<usize> = (0..16).filter(|nth| answers[*nth].is_err()).collect();
    same("who was refused", refused, vec![STALE])?;
    let versions: Vec<u64> = world.rows(Scan::all::<Job>()).await?.iter().map(|stored| stored.version).collect();
    let expected: Vec<u64> = (0..16).map(|nth| if nth == STALE { 1 } else { 2 }).collect();
    same("the versions", versions, expected)
}

async fn racing_deletes_have_one_winner(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    one_winner(world, |_| Commit::new().delete(&job("j"), 1)).await
}

/// Starts executions at once with one start key, and expects one of them and the same answer for all others.
async fn one_start(world: &World<'_>, number: impl Fn(usize) -> u8 + Sync) -> Verdict {
    let pair = world.pair().await?;
    let start = |nth: usize| Commit::new().insert_or_keep(&started(number(nth), Some("order")));
    let answers = pair.race(16, |store, nth| store.commit(start(nth))).await;
    let receipts: Vec<_> = answers.into_iter().collect::<Result<_, _>>()?;
    let outcomes: Vec<Outcome> = receipts.into_iter().flat_map(|receipt| receipt.changes).collect();
    same("how many were made", outcomes.iter().filter(|outcome| **outcome == Outcome::Made).count(), 1)?;
    let rows = dump::rows(world.store(), Execution::TABLE).await?;
    same("how many there are", rows.len(), 1)?;
    for outcome in outcomes.into_iter().filter(|outcome| *outcome != Outcome::Made) {
        same("the answer to the others", outcome, Outcome::Kept(rows[0].clone()))?;
    }
    Ok(())
}

async fn racing_starts_make_one_execution(world: &World<'_>) -> Verdict {
    one_start(world, |_| 1).await
}

async fn racing_starts_under_other_ids_make_one_execution(world: &World<'_>) -> Verdict {
    one_start(world, |nth| u8::try_from(nth).unwrap_or(0)).await
}

async fn racing_messages_with_one_dedup_key_leave_one(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for answer in pair.race(16, |store, _| store.commit(Commit::new().insert_or_keep(&message(1, Some("key"))))).await {
        answer?;
    }
    let found: Vec<_> = messages(world).await?.into_iter().map(|message| message.execution_id).collect();
    same("the messages", found, vec![execution(1)])
}

async fn racing_messages_all_get_a_serial_of_their_own(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for answer in pair.race(32, |store, _| store.commit(Commit::new().insert(&message(1, None)))).await {
        answer?;
    }
    let serials = serials(world).await?;
    same("how many", serials.len(), 32)?;
    holds("each is larger than the one before", serials.is_sorted_by(|one, next| one < next))
}
