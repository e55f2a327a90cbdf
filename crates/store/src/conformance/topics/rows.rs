//! Checks of rows by example: keys, versions, and the shape of a row.

use super::prelude::*;
use crate::conformance::fixtures::{
    numbered_execution, queued_job_row, queued_task_row, record_key, reserved_item_row,
    running_execution_row, signal_message_row,
};
use crate::tables::{InboxMessageRow, JobRow, TaskRow};
use crate::{RowChange, TableRow};

super::checks!(Rows:
    reading_a_missing_row_returns_none,
    a_row_is_found_by_its_complete_key,
    tables_do_not_share_rows,
    a_delete_of_an_execution_row_deletes_nothing_else,
    version_0_does_not_match_a_missing_row,
    two_changes_of_one_row_in_one_commit_are_rejected,
    a_missing_value_is_rejected,
    a_value_of_the_wrong_type_is_rejected,
    a_row_with_the_wrong_number_of_columns_is_rejected,
    a_message_for_an_unknown_execution_is_stored,
    a_second_handle_reads_written_rows,
);

pub(super) async fn read_job(
    world: &CheckContext<'_>,
    name: &str,
) -> Result<Option<(JobRow, u64)>, ConformanceFailure> {
    Ok(world.read_record(record_key(&queued_job_row(name))).await?)
}

pub(super) async fn read_messages(
    world: &CheckContext<'_>,
) -> Result<Vec<InboxMessageRow>, ConformanceFailure> {
    Ok(world
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await?
        .into_iter()
        .map(|(message, _)| message)
        .collect())
}

async fn reading_a_missing_row_returns_none(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    expect_same("the row", read_job(world, "k").await?, None)?;
    expect_same(
        "an empty table",
        world.scan_rows(TableScan::all_rows::<TaskRow>()).await?,
        Vec::new(),
    )
}

async fn a_row_is_found_by_its_complete_key(world: &CheckContext<'_>) -> CheckResult {
    let tasks = [
        queued_task_row(1, 1),
        queued_task_row(1, 2),
        queued_task_row(2, 1),
    ];
    world
        .commit(
            tasks
                .iter()
                .fold(Commit::new(), |commit, task| commit.insert(task)),
        )
        .await?;
    for task in tasks {
        expect_same(
            "the row",
            world.read_record(record_key(&task)).await?,
            Some((task, 1)),
        )?;
    }
    expect_same(
        "a key of two existing halves",
        world
            .read_row(TaskRow::TABLE, record_key(&queued_task_row(2, 2)))
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

async fn a_delete_of_an_execution_row_deletes_nothing_else(
    world: &CheckContext<'_>,
) -> CheckResult {
    let around = Commit::new()
        .append_journal(fixtures::numbered_append(1, 0, 2))
        .insert(&queued_task_row(1, 1))
        .insert(&signal_message_row(1, None));
    world.commit(around).await?;
    let before = world.dump_store().await?;
    world
        .commit(Commit::new().insert(&running_execution_row(1, None)))
        .await?;
    world
        .commit(Commit::new().delete(&running_execution_row(1, None), 1))
        .await?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn version_0_does_not_match_a_missing_row(world: &CheckContext<'_>) -> CheckResult {
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

async fn two_changes_of_one_row_in_one_commit_are_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn a_missing_value_is_rejected(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_value_of_the_wrong_type_is_rejected(world: &CheckContext<'_>) -> CheckResult {
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
                reason: "the value has the wrong type",
            },
        )?;
    }
    Ok(())
}

async fn a_row_with_the_wrong_number_of_columns_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
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
            reason: "the row has more values than the table has columns",
        },
    )
}

async fn a_message_for_an_unknown_execution_is_stored(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&signal_message_row(9, Some("key"))))
        .await?;
    let scan = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
        .where_equal(&signal_message_row(9, None).shard);
    let waiting: Vec<(InboxMessageRow, u64)> = world.list_records(scan).await?;
    expect_same(
        "the executions that have messages",
        waiting.iter().map(|(it, _)| it.execution_id).collect(),
        vec![numbered_execution(9)],
    )
}

async fn a_second_handle_reads_written_rows(world: &CheckContext<'_>) -> CheckResult {
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
            "the row that the second handle reads",
            pair.second_handle()
                .read_row(JobRow::TABLE, record_key(&queued_job_row(&name)))
                .await?,
            None,
        )?;
    }
    Ok(())
}
