//! Checks of rows by example: versions, unique columns, serial numbers, and races for all of them.

use super::prelude::*;
use crate::conformance::fixtures::{
    gap_alert_row, numbered_execution, pending_timer_row, queued_job_row, record_key,
    reserved_item_row, running_execution_row, signal_message_row,
};
use crate::conformance::store_dump;
use crate::tables::{AlertRow, ExecutionRow, InboxMessageRow, JobRow, OutboxItemRow, TimerRow};
use crate::{RowChange, SerialId, TableRow};

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

async fn read_job(
    world: &CheckContext<'_>,
    name: &str,
) -> Result<Option<(JobRow, u64)>, ConformanceFailure> {
    Ok(world.read_record(record_key(&queued_job_row(name))).await?)
}

async fn read_messages(
    world: &CheckContext<'_>,
) -> Result<Vec<InboxMessageRow>, ConformanceFailure> {
    Ok(world
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await?
        .into_iter()
        .map(|(message, _)| message)
        .collect())
}

async fn read_serials(world: &CheckContext<'_>) -> Result<Vec<i64>, ConformanceFailure> {
    Ok(read_messages(world)
        .await?
        .into_iter()
        .filter_map(|message| message.message_id.0)
        .collect())
}

fn not_unique_conflict<R: TableRecord>(holder: &R) -> CommitConflict {
    CommitConflict::NotUnique {
        table: R::TABLE.name,
        columns: R::TABLE.unique[0],
        key: record_key(holder),
    }
}

async fn an_absent_row_is_none(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    expect_same("the row", read_job(world, "k").await?, None)?;
    expect_same(
        "an empty table",
        world.scan_rows(TableScan::all_rows::<TimerRow>()).await?,
        Vec::new(),
    )
}

async fn a_row_is_found_by_its_whole_key(world: &CheckContext<'_>) -> CheckResult {
    let timers = [
        pending_timer_row(1, 1),
        pending_timer_row(1, 2),
        pending_timer_row(2, 1),
    ];
    world
        .commit(
            timers
                .iter()
                .fold(Commit::new(), |commit, timer| commit.insert(timer)),
        )
        .await?;
    for timer in timers {
        expect_same(
            "the row",
            world.read_record(record_key(&timer)).await?,
            Some((timer, 1)),
        )?;
    }
    expect_same(
        "no such pair",
        world
            .read_row(TimerRow::TABLE, record_key(&pending_timer_row(2, 2)))
            .await?,
        None,
    )
}

async fn tables_do_not_share_rows(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("same"))
                .insert(&reserved_item_row("same", "k")),
        )
        .await?;
    world
        .commit(Commit::new().delete(&queued_job_row("same"), 1))
        .await?;
    expect_same(
        "the item",
        world
            .read_record(record_key(&reserved_item_row("same", "k")))
            .await?,
        Some((reserved_item_row("same", "k"), 1)),
    )
}

async fn deleting_the_row_of_an_execution_deletes_nothing_else(
    world: &CheckContext<'_>,
) -> CheckResult {
    let around = Commit::new()
        .append_journal(fixtures::numbered_append(1, 0, 2))
        .insert(&pending_timer_row(1, 1))
        .insert(&signal_message_row(1, None));
    world.commit(around).await?;
    let before = world.dump_store().await?;
    world
        .commit(Commit::new().insert(&running_execution_row(1, None)))
        .await?;
    world
        .commit(Commit::new().delete(&running_execution_row(1, None), 1))
        .await?;
    expect_same("what is stored", world.dump_store().await?, before)
}

async fn version_0_is_no_version_of_an_absent_row(world: &CheckContext<'_>) -> CheckResult {
    let conflict = || CommitConflict::RowVersion {
        table: JobRow::TABLE.name,
        key: record_key(&queued_job_row("j")),
        expected: 0,
        found: 0,
    };
    expect_refused(
        world
            .commit(Commit::new().update(&queued_job_row("j"), 0))
            .await,
        conflict(),
    )?;
    expect_refused(
        world
            .commit(Commit::new().delete(&queued_job_row("j"), 0))
            .await,
        conflict(),
    )?;
    expect_same("the row", read_job(world, "j").await?, None)
}

async fn a_key_never_conflicts_with_its_own_row(world: &CheckContext<'_>) -> CheckResult {
    let execution = running_execution_row(1, Some("order-1"));
    world.commit(Commit::new().insert(&execution)).await?;
    let parked = ExecutionRow {
        wake_at: timestamp_after_ms(9),
        ..execution
    };
    world.commit(Commit::new().update(&parked, 1)).await?;
    expect_same(
        "the row",
        world.read_record(record_key(&parked)).await?,
        Some((parked, 2)),
    )
}

async fn an_update_may_change_what_is_unique(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&reserved_item_row("a", "one"))
                .insert(&reserved_item_row("b", "two")),
        )
        .await?;
    world
        .commit(Commit::new().update(&reserved_item_row("a", "three"), 1))
        .await?;
    let taken = world
        .commit(Commit::new().insert(&reserved_item_row("c", "three")))
        .await;
    expect_refused(taken, not_unique_conflict(&reserved_item_row("a", "three")))?;
    expect_refused(
        world
            .commit(Commit::new().update(&reserved_item_row("b", "three"), 1))
            .await,
        not_unique_conflict(&reserved_item_row("a", "three")),
    )
}

async fn an_update_frees_what_was_unique(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    world
        .commit(Commit::new().update(&reserved_item_row("a", "two"), 1))
        .await?;
    world
        .commit(Commit::new().insert(&reserved_item_row("b", "one")))
        .await?;
    Ok(())
}

async fn a_delete_frees_what_was_unique(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    world
        .commit(Commit::new().delete(&reserved_item_row("a", "one"), 1))
        .await?;
    world
        .commit(Commit::new().insert(&reserved_item_row("b", "one")))
        .await?;
    Ok(())
}

async fn what_is_unique_is_judged_before_the_commit(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&reserved_item_row("a", "one"))
                .insert(&reserved_item_row("b", "two")),
        )
        .await?;
    let before = world.dump_store().await?;
    let exchange = Commit::new()
        .delete(&reserved_item_row("a", "one"), 1)
        .insert(&reserved_item_row("c", "one"));
    expect_refused(
        world.commit(exchange).await,
        not_unique_conflict(&reserved_item_row("a", "one")),
    )?;
    let swap = Commit::new()
        .update(&reserved_item_row("a", "two"), 1)
        .update(&reserved_item_row("b", "one"), 1);
    expect_refused(
        world.commit(swap).await,
        not_unique_conflict(&reserved_item_row("b", "two")),
    )?;
    expect_same("what is stored", world.dump_store().await?, before)
}

async fn a_row_with_nothing_in_a_unique_column_is_exempt(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&running_execution_row(1, None))
                .insert(&running_execution_row(2, None)),
        )
        .await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&running_execution_row(3, None)))
        .await?;
    expect_same("the outcome", receipt.changes, vec![ChangeOutcome::Applied])
}

async fn an_update_to_nothing_frees_what_was_unique(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&running_execution_row(1, Some("order"))))
        .await?;
    world
        .commit(Commit::new().update(&running_execution_row(1, None), 1))
        .await?;
    world
        .commit(Commit::new().insert(&running_execution_row(2, Some("order"))))
        .await?;
    expect_refused(
        world
            .commit(Commit::new().update(&running_execution_row(1, Some("order")), 2))
            .await,
        not_unique_conflict(&running_execution_row(2, Some("order"))),
    )
}

async fn the_same_unique_values_beside_another_first_column_are_free(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&signal_message_row(1, Some("key"))))
        .await?;
    world
        .commit(
            Commit::new()
                .insert(&signal_message_row(2, Some("key")))
                .insert(&signal_message_row(1, Some("other"))),
        )
        .await?;
    let holder = read_messages(world)
        .await?
        .into_iter()
        .find(|it| it.execution_id == signal_message_row(2, None).execution_id);
    let holder = expect_some("the message", holder)?;
    expect_refused(
        world
            .commit(Commit::new().insert(&signal_message_row(2, Some("key"))))
            .await,
        not_unique_conflict(&holder),
    )
}

async fn insert_or_keep_makes_a_row_that_is_absent(world: &CheckContext<'_>) -> CheckResult {
    let receipt = world
        .commit(Commit::new().insert_or_keep(&queued_job_row("j")))
        .await?;
    expect_same("the outcome", receipt.changes, vec![ChangeOutcome::Applied])?;
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((queued_job_row("j"), 1)),
    )
}

async fn insert_or_keep_keeps_the_row_with_its_key(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let other = JobRow {
        attempts: 9,
        ..queued_job_row("j")
    };
    let receipt = world.commit(Commit::new().insert_or_keep(&other)).await?;
    let stored = StoredRow {
        row: queued_job_row("j").to_row(),
        version: 1,
    };
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(stored)],
    )?;
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((queued_job_row("j"), 1)),
    )
}

async fn insert_or_keep_keeps_the_row_with_its_unique_values(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&running_execution_row(1, Some("order"))))
        .await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&running_execution_row(2, Some("order"))))
        .await?;
    let stored = StoredRow {
        row: running_execution_row(1, Some("order")).to_row(),
        version: 1,
    };
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(stored)],
    )?;
    expect_same(
        "the row",
        world
            .read_row(
                ExecutionRow::TABLE,
                record_key(&running_execution_row(2, None)),
            )
            .await?,
        None,
    )
}

async fn insert_or_keep_answers_with_the_latest_version(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let latest = JobRow {
        attempts: 1,
        ..queued_job_row("j")
    };
    world.commit(Commit::new().update(&latest, 1)).await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&queued_job_row("j")))
        .await?;
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(StoredRow {
            row: latest.to_row(),
            version: 2,
        })],
    )
}

async fn a_row_that_clashes_twice_is_answered_by_the_one_with_its_key(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&reserved_item_row("a", "one"))
                .insert(&reserved_item_row("b", "two")),
        )
        .await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&reserved_item_row("a", "two")))
        .await?;
    let stored = StoredRow {
        row: reserved_item_row("a", "one").to_row(),
        version: 1,
    };
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(stored)],
    )
}

async fn an_insert_that_clashes_twice_is_told_of_its_key(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&reserved_item_row("a", "one"))
                .insert(&reserved_item_row("b", "two")),
        )
        .await?;
    let key = record_key(&reserved_item_row("a", "two"));
    let answer = world
        .commit(Commit::new().insert(&reserved_item_row("a", "two")))
        .await;
    expect_refused(
        answer,
        CommitConflict::RowExists {
            table: OutboxItemRow::TABLE.name,
            key,
        },
    )
}

async fn serials_grow(world: &CheckContext<'_>) -> CheckResult {
    for _ in 0..12 {
        world
            .commit(Commit::new().insert(&signal_message_row(1, None)))
            .await?;
    }
    let serials = read_serials(world).await?;
    expect_same("how many", serials.len(), 12)?;
    expect_holds(
        "each is larger than the one before",
        serials.is_sorted_by(|one, next| one < next),
    )
}

async fn serials_follow_the_order_of_the_commit(world: &CheckContext<'_>) -> CheckResult {
    let names = ["d", "a", "c", "b", "e"];
    world
        .commit(names.iter().fold(Commit::new(), |commit, name| {
            commit.insert(&signal_message_row(1, Some(name)))
        }))
        .await?;
    let found: Vec<_> = read_messages(world)
        .await?
        .into_iter()
        .filter_map(|message| message.dedup_key)
        .collect();
    expect_same(
        "the keys in the order of their serials",
        found,
        names.map(Into::into).to_vec(),
    )
}

/// Inserts three messages, deletes the last `deleted`, and expects the next message to get a larger
/// number than all three.
async fn expect_no_serial_reuse(world: &CheckContext<'_>, deleted: usize) -> CheckResult {
    let three = Commit::new()
        .insert(&signal_message_row(1, None))
        .insert(&signal_message_row(1, None))
        .insert(&signal_message_row(1, None));
    world.commit(three).await?;
    let before = read_messages(world).await?;
    let largest = expect_some(
        "a serial",
        before
            .iter()
            .filter_map(|message| message.message_id.0)
            .max(),
    )?;
    let gone = before.iter().rev().take(deleted);
    world
        .commit(gone.fold(Commit::new(), |commit, message| commit.delete(message, 1)))
        .await?;
    world
        .commit(Commit::new().insert(&signal_message_row(1, None)))
        .await?;
    let newest = read_serials(world).await?.pop().unwrap_or_default();
    expect_holds(
        &format!("{newest} comes after {largest}, which was deleted"),
        newest > largest,
    )
}

async fn a_serial_is_not_repeated_when_the_last_row_is_deleted(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_no_serial_reuse(world, 1).await
}

async fn a_serial_is_not_repeated_when_all_rows_are_deleted(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_no_serial_reuse(world, 3).await
}

async fn a_kept_row_with_a_serial_shows_it(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&gap_alert_row("first"))
                .insert(&gap_alert_row("second")),
        )
        .await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&gap_alert_row("second")))
        .await?;
    let rows = world.scan_rows(TableScan::all_rows::<AlertRow>()).await?;
    let second = expect_some("the second alert", rows.into_iter().nth(1))?;
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(second)],
    )
}

async fn rows_with_a_serial_and_no_dedup_key_are_all_kept(world: &CheckContext<'_>) -> CheckResult {
    for _ in 0..3 {
        world
            .commit(Commit::new().insert_or_keep(&signal_message_row(1, None)))
            .await?;
    }
    let several = Commit::new()
        .insert_or_keep(&signal_message_row(1, None))
        .insert_or_keep(&signal_message_row(1, None));
    world.commit(several).await?;
    expect_same("how many", read_messages(world).await?.len(), 5)
}

async fn a_row_with_a_serial_is_updated_by_it(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&signal_message_row(1, Some("a")))
                .insert(&signal_message_row(1, Some("b"))),
        )
        .await?;
    let first = expect_some("a message", read_messages(world).await?.into_iter().next())?;
    let changed = InboxMessageRow {
        sent_at: timestamp_after_ms(7),
        ..first
    };
    world.commit(Commit::new().update(&changed, 1)).await?;
    expect_same(
        "the row",
        world.read_record(record_key(&changed)).await?,
        Some((changed.clone(), 2)),
    )?;
    expect_same(
        "the first row",
        read_messages(world).await?.into_iter().next(),
        Some(changed),
    )
}

async fn a_serial_cannot_be_chosen(world: &CheckContext<'_>) -> CheckResult {
    let chosen = InboxMessageRow {
        message_id: SerialId(Some(7)),
        ..signal_message_row(1, None)
    };
    let reason = "the store assigns it";
    let error = || InvalidRequest::Value {
        table: InboxMessageRow::TABLE.name,
        column: "message_id",
        reason,
    };
    expect_refused(world.commit(Commit::new().insert(&chosen)).await, error())?;
    expect_refused(
        world.commit(Commit::new().insert_or_keep(&chosen)).await,
        error(),
    )
}

async fn a_row_twice_in_one_commit_is_refused(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let twice = [
        Commit::new().insert_or_keep(&queued_job_row("j")),
        Commit::new().update(&queued_job_row("j"), 1),
    ];
    for commit in twice {
        let answer = world.commit(commit.delete(&queued_job_row("j"), 1)).await;
        expect_refused(
            answer,
            InvalidRequest::TouchedTwice("row j of job_queue".to_owned()),
        )?;
    }
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((queued_job_row("j"), 1)),
    )
}

async fn the_same_unique_values_twice_in_one_commit_are_refused(
    world: &CheckContext<'_>,
) -> CheckResult {
    let twice = Commit::new()
        .insert(&signal_message_row(1, Some("key")))
        .insert_or_keep(&signal_message_row(1, Some("key")));
    let what = "the same execution_id, dedup_key of inbox".to_owned();
    expect_refused(
        world.commit(twice).await,
        InvalidRequest::TouchedTwice(what),
    )?;
    expect_same("what is stored", read_messages(world).await?, Vec::new())
}

/// Inserts a job row that `change` has made invalid.
fn insert_malformed_job(change: impl Fn(&mut Vec<ColumnValue>)) -> Commit {
    let TableRow(mut values) = queued_job_row("j").to_row();
    change(&mut values);
    let mut commit = Commit::new();
    commit.changes.push(RowChange::Insert {
        table: JobRow::TABLE,
        row: TableRow(values),
    });
    commit
}

async fn a_missing_value_is_refused(world: &CheckContext<'_>) -> CheckResult {
    for (place, column) in JobRow::TABLE
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| !column.nullable)
    {
        let (table, column) = (JobRow::TABLE.name, column.name);
        let answer = world
            .commit(insert_malformed_job(|values| {
                values[place] = ColumnValue::Null
            }))
            .await;
        expect_refused(
            answer,
            InvalidRequest::Value {
                table,
                column,
                reason: "a value is required",
            },
        )?;
    }
    Ok(())
}

async fn a_value_of_another_type_is_refused(world: &CheckContext<'_>) -> CheckResult {
    for (place, column) in JobRow::TABLE.columns.iter().enumerate() {
        let (table, column) = (JobRow::TABLE.name, column.name);
        let answer = world
            .commit(insert_malformed_job(|values| {
                values[place] = ColumnValue::Bool(true)
            }))
            .await;
        expect_refused(
            answer,
            InvalidRequest::Value {
                table,
                column,
                reason: "the value is of another type",
            },
        )?;
    }
    Ok(())
}

async fn a_row_of_another_width_is_refused(world: &CheckContext<'_>) -> CheckResult {
    let table = JobRow::TABLE.name;
    let narrow = world
        .commit(insert_malformed_job(|values| drop(values.pop())))
        .await;
    expect_refused(
        narrow,
        InvalidRequest::Value {
            table,
            column: "created_at",
            reason: "no value is given",
        },
    )?;
    let wide = world
        .commit(insert_malformed_job(|values| {
            values.push(ColumnValue::Null)
        }))
        .await;
    expect_refused(
        wide,
        InvalidRequest::Value {
            table,
            column: "id",
            reason: "there are more values than columns",
        },
    )
}

async fn a_message_for_an_unknown_execution_waits_visibly(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&signal_message_row(9, Some("key"))))
        .await?;
    let scan = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
        .where_equal(&signal_message_row(9, None).shard);
    let waiting: Vec<(InboxMessageRow, u64)> = world.list_records(scan).await?;
    expect_same(
        "for whom messages wait",
        waiting.iter().map(|(it, _)| it.execution_id).collect(),
        vec![numbered_execution(9)],
    )
}

async fn a_reader_sees_what_another_handle_wrote(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for attempts in 0..10 {
        let name = format!("j{attempts}");
        pair.second_handle()
            .commit(Commit::new().insert(&queued_job_row(&name)))
            .await?;
        expect_same(
            "the row",
            read_job(world, &name).await?,
            Some((queued_job_row(&name), 1)),
        )?;
        world
            .commit(Commit::new().delete(&queued_job_row(&name), 1))
            .await?;
        expect_same(
            "the row, seen by the other",
            pair.second_handle()
                .read_row(JobRow::TABLE, record_key(&queued_job_row(&name)))
                .await?,
            None,
        )?;
    }
    Ok(())
}

/// Runs a commit sixteen times concurrently, and expects the store to apply one and the others to
/// conflict.
async fn expect_one_winner(
    world: &CheckContext<'_>,
    commit: impl Fn(usize) -> Commit + Sync,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(16, |store, nth| store.commit(commit(nth)))
        .await;
    expect_same(
        "how many were stored",
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
    )?;
    let conflicts = answers
        .into_iter()
        .filter_map(Result::err)
        .filter(|error| error.kind() == StoreErrorKind::Conflict);
    expect_same("how many were told of a conflict", conflicts.count(), 15)
}

async fn racing_inserts_of_one_key_have_one_winner(world: &CheckContext<'_>) -> CheckResult {
    expect_one_winner(world, |_| Commit::new().insert(&queued_job_row("j"))).await
}

async fn racing_updates_of_one_version_have_one_winner(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    expect_one_winner(world, |_| Commit::new().update(&queued_job_row("j"), 1)).await?;
    expect_same(
        "the version",
        read_job(world, "j").await?.map(|(_, version)| version),
        Some(2),
    )
}

/// Returns a job with an error message.
fn job_with_error(name: &str) -> JobRow {
    JobRow {
        error: Some("told".into()),
        ..queued_job_row(name)
    }
}

async fn racing_amendments_of_one_version_have_one_winner(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    expect_one_winner(world, |_| {
        Commit::new().update_columns(&queued_job_row("j"), &job_with_error("j"), 1)
    })
    .await?;
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((job_with_error("j"), 2)),
    )
}

async fn an_amendment_leaves_what_others_changed_alone(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    world
        .commit(Commit::new().update(
            &JobRow {
                served: 7,
                ..queued_job_row("j")
            },
            1,
        ))
        .await?;
    // The caller may be wrong about the columns that it does not update.
    world
        .commit(Commit::new().update_columns(&queued_job_row("j"), &job_with_error("j"), 2))
        .await?;
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((
            JobRow {
                served: 7,
                ..job_with_error("j")
            },
            3,
        )),
    )
}

async fn what_is_inserted_beside_an_amendment_is_judged_before_the_commit(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    let sent = OutboxItemRow {
        status: "sent".into(),
        ..reserved_item_row("a", "one")
    };
    let amended = || Commit::new().update_columns(&reserved_item_row("a", "one"), &sent, 1);
    expect_refused(
        world
            .commit(amended().insert(&reserved_item_row("b", "one")))
            .await,
        not_unique_conflict(&reserved_item_row("a", "one")),
    )?;
    let kept = world
        .commit(amended().insert_or_keep(&reserved_item_row("b", "one")))
        .await?;
    let before = StoredRow {
        row: reserved_item_row("a", "one").to_row(),
        version: 1,
    };
    expect_same(
        "the outcomes",
        kept.changes,
        vec![ChangeOutcome::Applied, ChangeOutcome::Kept(before)],
    )?;
    expect_same(
        "the row",
        world.read_record(record_key(&sent)).await?,
        Some((sent, 2)),
    )
}

async fn a_stale_amendment_takes_the_whole_commit_along(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("j"))
                .insert(&queued_job_row("k")),
        )
        .await?;
    world
        .commit(Commit::new().update_columns(&queued_job_row("k"), &job_with_error("k"), 1))
        .await?;
    let before = world.dump_store().await?;
    let stale = Commit::new()
        .insert(&queued_job_row("l"))
        .update_columns(&queued_job_row("j"), &job_with_error("j"), 1)
        .update_columns(&queued_job_row("k"), &job_with_error("k"), 1);
    let conflict = CommitConflict::RowVersion {
        table: JobRow::TABLE.name,
        key: record_key(&queued_job_row("k")),
        expected: 1,
        found: 2,
    };
    expect_refused(world.commit(stale).await, conflict)?;
    expect_same("what is stored", world.dump_store().await?, before)
}

async fn a_stale_amendment_disturbs_no_other_commit(world: &CheckContext<'_>) -> CheckResult {
    const STALE: usize = 7;
    let name = |nth: usize| format!("j{nth:02}");
    world
        .commit((0..16).fold(Commit::new(), |commit, nth| {
            commit.insert(&queued_job_row(&name(nth)))
        }))
        .await?;
    let amended = |nth: usize| {
        let version = if nth == STALE { 2 } else { 1 };
        Commit::new().update_columns(
            &queued_job_row(&name(nth)),
            &job_with_error(&name(nth)),
            version,
        )
    };
    let answers = world
        .open_handle_pair()
        .await?
        .race_calls(16, |store, nth| store.commit(amended(nth)))
        .await;
    let refused: Vec<usize> = (0..16).filter(|nth| answers[*nth].is_err()).collect();
    expect_same("who was refused", refused, vec![STALE])?;
    let versions: Vec<u64> = world
        .scan_rows(TableScan::all_rows::<JobRow>())
        .await?
        .iter()
        .map(|stored| stored.version)
        .collect();
    let expected: Vec<u64> = (0..16)
        .map(|nth| if nth == STALE { 1 } else { 2 })
        .collect();
    expect_same("the versions", versions, expected)
}

async fn racing_deletes_have_one_winner(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    expect_one_winner(world, |_| Commit::new().delete(&queued_job_row("j"), 1)).await
}

/// Starts executions concurrently with one start key, and expects one execution and the same result
/// for all other calls.
async fn expect_one_start(
    world: &CheckContext<'_>,
    number: impl Fn(usize) -> u8 + Sync,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let start = |nth: usize| {
        Commit::new().insert_or_keep(&running_execution_row(number(nth), Some("order")))
    };
    let answers = pair
        .race_calls(16, |store, nth| store.commit(start(nth)))
        .await;
    let receipts: Vec<_> = answers.into_iter().collect::<Result<_, _>>()?;
    let outcomes: Vec<ChangeOutcome> = receipts
        .into_iter()
        .flat_map(|receipt| receipt.changes)
        .collect();
    expect_same(
        "how many were made",
        outcomes
            .iter()
            .filter(|outcome| **outcome == ChangeOutcome::Applied)
            .count(),
        1,
    )?;
    let rows = store_dump::read_all_rows(world.store(), ExecutionRow::TABLE).await?;
    expect_same("how many there are", rows.len(), 1)?;
    for outcome in outcomes
        .into_iter()
        .filter(|outcome| *outcome != ChangeOutcome::Applied)
    {
        expect_same(
            "the answer to the others",
            outcome,
            ChangeOutcome::Kept(rows[0].clone()),
        )?;
    }
    Ok(())
}

async fn racing_starts_make_one_execution(world: &CheckContext<'_>) -> CheckResult {
    expect_one_start(world, |_| 1).await
}

async fn racing_starts_under_other_ids_make_one_execution(world: &CheckContext<'_>) -> CheckResult {
    expect_one_start(world, |nth| u8::try_from(nth).unwrap_or(0)).await
}

async fn racing_messages_with_one_dedup_key_leave_one(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for answer in pair
        .race_calls(16, |store, _| {
            store.commit(Commit::new().insert_or_keep(&signal_message_row(1, Some("key"))))
        })
        .await
    {
        answer?;
    }
    let found: Vec<_> = read_messages(world)
        .await?
        .into_iter()
        .map(|message| message.execution_id)
        .collect();
    expect_same("the messages", found, vec![numbered_execution(1)])
}

async fn racing_messages_all_get_a_serial_of_their_own(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for answer in pair
        .race_calls(32, |store, _| {
            store.commit(Commit::new().insert(&signal_message_row(1, None)))
        })
        .await
    {
        answer?;
    }
    let serials = read_serials(world).await?;
    expect_same("how many", serials.len(), 32)?;
    expect_holds(
        "each is larger than the one before",
        serials.is_sorted_by(|one, next| one < next),
    )
}
