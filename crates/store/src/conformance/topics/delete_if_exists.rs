//! Checks of unconditional deletion: it succeeds regardless of what is stored, alone, beside other
//! changes and in races.

use super::prelude::*;
use crate::RowChange;
use crate::conformance::fixtures::{
    queued_job_row, queued_task_row, record_key, reserved_item_row, running_execution_row,
    signal_message_row,
};
use crate::tables::{ExecutionRow, InboxMessageRow, JobRow, OutboxItemRow, TaskRow};

super::checks!(Rows:
    delete_if_exists_deletes_a_row_at_any_version,
    delete_if_exists_of_a_missing_row_succeeds_and_changes_nothing,
    delete_if_exists_deletes_no_other_row,
    delete_if_exists_of_an_execution_row_deletes_nothing_else,
    a_deleted_row_can_be_neither_updated_nor_deleted,
    a_deleted_row_can_be_inserted_again,
    delete_if_exists_frees_unique_values,
    delete_if_exists_does_not_free_unique_values_for_its_own_commit,
    the_rest_of_a_commit_is_stored_beside_delete_if_exists,
    delete_if_exists_beside_another_change_of_its_row_is_rejected,
    delete_if_exists_finds_a_row_by_its_serial,
    delete_if_exists_rejects_an_invalid_key,
    concurrent_deletes_if_exists_all_succeed,
    delete_if_exists_succeeds_despite_concurrent_updates,
    deletes_concurrent_with_inserts_in_two_tables_leave_both_rows_or_none,
);

fn delete_job_if_exists(name: &str) -> Commit {
    Commit::new().delete_if_exists::<JobRow>(record_key(&queued_job_row(name)))
}

async fn read_job(
    world: &CheckContext<'_>,
    name: &str,
) -> Result<Option<(JobRow, u64)>, ConformanceFailure> {
    Ok(world.read_record(record_key(&queued_job_row(name))).await?)
}

async fn delete_if_exists_deletes_a_row_at_any_version(world: &CheckContext<'_>) -> CheckResult {
    for changes in 0..4 {
        world
            .commit(Commit::new().insert(&queued_job_row("j")))
            .await?;
        for version in 1..=changes {
            world
                .commit(Commit::new().update(&queued_job_row("j"), version))
                .await?;
        }
        expect_same(
            "the outcome",
            world.commit(delete_job_if_exists("j")).await?.changes,
            vec![ChangeOutcome::Applied],
        )?;
        expect_same("the row", read_job(world, "j").await?, None)?;
    }
    Ok(())
}

async fn delete_if_exists_of_a_missing_row_succeeds_and_changes_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("j"))
                .insert(&queued_task_row(1, 1)),
        )
        .await?;
    let before = world.dump_store().await?;
    let absent = delete_job_if_exists("k")
        .delete_if_exists::<TaskRow>(record_key(&queued_task_row(1, 2)))
        .delete_if_exists::<ExecutionRow>(record_key(&running_execution_row(1, None)));
    expect_same(
        "the outcome",
        world.commit(absent).await?.changes,
        vec![ChangeOutcome::Applied; 3],
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn delete_if_exists_deletes_no_other_row(world: &CheckContext<'_>) -> CheckResult {
    let tasks = [
        queued_task_row(1, 1),
        queued_task_row(1, 2),
        queued_task_row(2, 1),
    ];
    let ground = Commit::new()
        .insert(&queued_job_row("same"))
        .insert(&reserved_item_row("same", "k"));
    world
        .commit(
            tasks
                .iter()
                .fold(ground, |commit, task| commit.insert(task)),
        )
        .await?;
    world
        .commit(delete_job_if_exists("same").delete_if_exists::<TaskRow>(record_key(&tasks[1])))
        .await?;
    expect_same(
        "the item",
        world
            .read_record(record_key(&reserved_item_row("same", "k")))
            .await?,
        Some((reserved_item_row("same", "k"), 1)),
    )?;
    let left: Vec<(TaskRow, u64)> = world.list_records(TableScan::all_rows::<TaskRow>()).await?;
    expect_same(
        "the tasks",
        left,
        vec![(queued_task_row(1, 1), 1), (queued_task_row(2, 1), 1)],
    )
}

async fn delete_if_exists_of_an_execution_row_deletes_nothing_else(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(
            Commit::new()
                .append_journal(numbered_append(1, 0, 2))
                .insert(&queued_task_row(1, 1))
                .insert(&signal_message_row(1, None)),
        )
        .await?;
    let before = world.dump_store().await?;
    world
        .commit(Commit::new().insert(&running_execution_row(1, None)))
        .await?;
    world
        .commit(
            Commit::new()
                .delete_if_exists::<ExecutionRow>(record_key(&running_execution_row(1, None))),
        )
        .await?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_deleted_row_can_be_neither_updated_nor_deleted(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    world.commit(delete_job_if_exists("j")).await?;
    let conflict = || CommitConflict::RowVersion {
        table: JobRow::TABLE.name,
        key: record_key(&queued_job_row("j")),
        expected: 1,
        found: 0,
    };
    expect_refused(
        world
            .commit(Commit::new().update(&queued_job_row("j"), 1))
            .await,
        conflict(),
    )?;
    expect_refused(
        world
            .commit(Commit::new().delete(&queued_job_row("j"), 1))
            .await,
        conflict(),
    )?;
    expect_same("the row", read_job(world, "j").await?, None)
}

async fn a_deleted_row_can_be_inserted_again(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    world
        .commit(Commit::new().update(&queued_job_row("j"), 1))
        .await?;
    world.commit(delete_job_if_exists("j")).await?;
    let again = JobRow {
        attempts: 7,
        ..queued_job_row("j")
    };
    expect_same(
        "the outcome",
        world
            .commit(Commit::new().insert_or_keep(&again))
            .await?
            .changes,
        vec![ChangeOutcome::Applied],
    )?;
    expect_same("the row", read_job(world, "j").await?, Some((again, 1)))
}

async fn delete_if_exists_frees_unique_values(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    world
        .commit(
            Commit::new()
                .delete_if_exists::<OutboxItemRow>(record_key(&reserved_item_row("a", "one"))),
        )
        .await?;
    world
        .commit(Commit::new().insert(&reserved_item_row("b", "one")))
        .await?;
    Ok(())
}

async fn delete_if_exists_does_not_free_unique_values_for_its_own_commit(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    let before = world.dump_store().await?;
    let key = record_key(&reserved_item_row("a", "one"));
    let exchange = Commit::new()
        .delete_if_exists::<OutboxItemRow>(key.clone())
        .insert(&reserved_item_row("b", "one"));
    let (table, columns) = (OutboxItemRow::TABLE.name, OutboxItemRow::TABLE.unique[0]);
    expect_refused(
        world.commit(exchange).await,
        CommitConflict::NotUnique {
            table,
            columns,
            key,
        },
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn the_rest_of_a_commit_is_stored_beside_delete_if_exists(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("a"))
                .insert(&queued_job_row("b"))
                .insert(&queued_job_row("c")),
        )
        .await?;
    let commit = delete_job_if_exists("absent")
        .insert(&queued_job_row("d"))
        .update(&queued_job_row("a"), 1)
        .delete_if_exists::<JobRow>(record_key(&queued_job_row("b")));
    world
        .commit(
            commit
                .delete(&queued_job_row("c"), 1)
                .append_journal(numbered_append(1, 0, 1))
                .append_events(step_events("r", 1, 2)),
        )
        .await?;
    let left: Vec<(JobRow, u64)> = world.list_records(TableScan::all_rows::<JobRow>()).await?;
    expect_same(
        "the rows",
        left,
        vec![(queued_job_row("a"), 2), (queued_job_row("d"), 1)],
    )?;
    expect_same(
        "the sequences in the run",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2],
    )
}

async fn delete_if_exists_beside_another_change_of_its_row_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let key = || record_key(&queued_job_row("j"));
    let others = [
        RowChange::insert(&queued_job_row("j")),
        RowChange::insert_or_keep(&queued_job_row("j")),
        RowChange::update(&queued_job_row("j"), 1),
        RowChange::delete(&queued_job_row("j"), 1),
        RowChange::delete_if_exists::<JobRow>(key()),
    ];
    for other in others {
        let (mut before, mut after) = (Commit::new(), delete_job_if_exists("j"));
        before.changes = vec![other.clone(), RowChange::delete_if_exists::<JobRow>(key())];
        after.changes.push(other);
        for commit in [before, after] {
            expect_refused(
                world.commit(commit).await,
                InvalidRequest::TouchedTwice("row j of job_queue".to_owned()),
            )?;
        }
    }
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((queued_job_row("j"), 1)),
    )
}

async fn delete_if_exists_finds_a_row_by_its_serial(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&signal_message_row(1, Some("a")))
                .insert(&signal_message_row(1, Some("b"))),
        )
        .await?;
    let sent: Vec<(InboxMessageRow, u64)> = world
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await?;
    expect_same("the number of rows", sent.len(), 2)?;
    let send_too = Commit::new().insert(&signal_message_row(1, Some("c")));
    world
        .commit(send_too.delete_if_exists::<InboxMessageRow>(record_key(&sent[1].0)))
        .await?;
    let left: Vec<(InboxMessageRow, u64)> = world
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await?;
    let keys: Vec<_> = left
        .iter()
        .filter_map(|(message, _)| message.dedup_key.clone())
        .collect();
    expect_same("the remaining keys", keys, vec!["a".into(), "c".into()])?;
    expect_holds(
        "the serial is not reused",
        left[1].0.message_id > sent[1].0.message_id,
    )
}

async fn delete_if_exists_rejects_an_invalid_key(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let misfits = [
        (vec![ColumnValue::Null], "a value is required"),
        (vec![ColumnValue::Int(1)], "the value has the wrong type"),
        (
            vec![ColumnValue::Text("\0".into())],
            "text must not contain U+0000",
        ),
        (
            vec![ColumnValue::Text("x".repeat(513).into())],
            "text of a key, unique or index column must have at most 512 bytes",
        ),
        (vec![], "no value is given"),
        (
            vec![ColumnValue::Text("j".into()), ColumnValue::Int(1)],
            "the row has more values than the table has columns",
        ),
    ];
    for (values, reason) in misfits {
        let answer = world
            .commit(Commit::new().delete_if_exists::<JobRow>(RowKey(values)))
            .await;
        expect_refused(
            answer,
            InvalidRequest::Value {
                table: JobRow::TABLE.name,
                column: "id",
                reason,
            },
        )?;
    }
    expect_same(
        "the row",
        read_job(world, "j").await?,
        Some((queued_job_row("j"), 1)),
    )
}

async fn concurrent_deletes_if_exists_all_succeed(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let pair = world.open_handle_pair().await?;
    for answer in pair
        .race_calls(16, |store, _| store.commit(delete_job_if_exists("j")))
        .await
    {
        expect_same("the outcome", answer?.changes, vec![ChangeOutcome::Applied])?;
    }
    expect_same("the row", read_job(world, "j").await?, None)
}

async fn delete_if_exists_succeeds_despite_concurrent_updates(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for round in 0..8 {
        world
            .commit(Commit::new().insert(&queued_job_row("j")))
            .await?;
        let is_removal = |nth: usize| nth == round;
        let racer = |nth: usize| {
            if is_removal(nth) {
                delete_job_if_exists("j")
            } else {
                Commit::new().update(&queued_job_row("j"), 1)
            }
        };
        let answers = pair
            .race_calls(8, |store, nth| store.commit(racer(nth)))
            .await;
        let (delete_results, updated): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .enumerate()
            .partition(|(nth, _)| is_removal(*nth));
        for (_, answer) in delete_results {
            expect_same("the outcome", answer?.changes, vec![ChangeOutcome::Applied])?;
        }
        expect_holds(
            "at most one update was applied",
            updated.iter().filter(|(_, answer)| answer.is_ok()).count() <= 1,
        )?;
        let refusals = updated.into_iter().filter_map(|(_, answer)| answer.err());
        expect_holds(
            "the other calls conflict",
            refusals
                .map(|error| error.kind())
                .all(|kind| kind == StoreErrorKind::Conflict),
        )?;
        expect_same("the row", read_job(world, "j").await?, None)?;
    }
    Ok(())
}

async fn deletes_concurrent_with_inserts_in_two_tables_leave_both_rows_or_none(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for _ in 0..8 {
        let racer = |nth: usize| match nth % 4 {
            0 | 1 => Commit::new()
                .insert(&queued_job_row("j"))
                .insert(&queued_task_row(1, 1)),
            _ => delete_job_if_exists("j")
                .delete_if_exists::<TaskRow>(record_key(&queued_task_row(1, 1))),
        };
        let answers = pair
            .race_calls(12, |store, nth| store.commit(racer(nth)))
            .await;
        for (nth, answer) in answers.into_iter().enumerate() {
            expect_holds("no delete is rejected", answer.is_ok() || nth % 4 < 2)?;
        }
        let has_task = world
            .read_row(TaskRow::TABLE, record_key(&queued_task_row(1, 1)))
            .await?
            .is_some();
        expect_same(
            "whether the rows exist",
            has_task,
            read_job(world, "j").await?.is_some(),
        )?;
    }
    Ok(())
}
