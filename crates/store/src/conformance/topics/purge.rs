//! Checks of retention: a purge deletes a complete run or execution and nothing else, and leaves no
//! trace of it.

use super::prelude::*;
use crate::PurgeTarget;
use crate::conformance::StoreDump;
use crate::conformance::fixtures::{
    current_snapshot_row, gap_alert_row, numbered_execution, queued_job_row, queued_task_row,
    reader_advance, running_execution_row, signal_message_row,
};
use crate::tables::{InboxMessageRow, RunSnapshotRow, TaskRow};

super::checks!(Purge:
    purging_a_run_removes_its_events_its_head_and_its_snapshot,
    purging_a_run_changes_nothing_else,
    purging_a_run_keeps_runs_with_similar_names,
    purging_a_missing_run_returns_false,
    purging_a_run_twice_returns_false,
    a_purged_run_starts_again_with_sequence_1,
    a_purged_run_starts_again_without_reader_positions,
    a_purged_run_starts_again_with_current_timestamps,
    an_event_of_a_purged_run_is_new_when_sent_again,
    a_snapshot_without_a_run_is_purged_with_its_run_id,
    an_alert_of_a_purged_run_can_be_raised_again,
    purging_an_execution_removes_all_its_data,
    purging_an_execution_changes_nothing_else,
    purging_a_missing_execution_returns_false,
    purging_an_execution_twice_returns_false,
    a_purged_execution_starts_again_with_event_0,
    a_start_key_can_be_reused_after_its_execution_is_purged,
    a_dedup_key_can_be_reused_after_its_execution_is_purged,
    serials_are_not_reused_after_a_purge,
    an_execution_without_a_journal_is_purged,
    a_journal_without_an_execution_is_purged,
    tasks_and_messages_without_an_execution_are_purged,
    a_second_handle_does_not_read_purged_data,
);

/// Stores two runs with snapshots, two executions with every kind of dependent row, and data that
/// belongs to neither.
async fn fill_store(world: &CheckContext<'_>) -> CheckResult {
    let mut commit = Commit::new()
        .append_events(step_events("r", 1, 3))
        .append_events(step_events("s", 1, 2))
        .insert(&queued_job_row("r"));
    for run in ["r", "s"] {
        commit = commit.insert(&current_snapshot_row(run, 1, "{}"));
    }
    for number in [1, 2] {
        commit = commit
            .append_journal(numbered_append(number, 0, 2))
            .insert(&running_execution_row(
                number,
                Some(&format!("order-{number}")),
            ))
            .insert(&queued_task_row(number, 1))
            .insert(&queued_task_row(number, 2))
            .insert(&signal_message_row(number, Some("key")))
            .insert(&signal_message_row(number, None));
    }
    world.commit(commit.insert(&gap_alert_row("once"))).await?;
    world
        .commit(Commit::new().advance_reader(reader_advance("r", RunEventReader::EventBus, 0, 2)))
        .await?;
    Ok(())
}

async fn purge_run(world: &CheckContext<'_>, run: &str) -> Result<bool, ConformanceFailure> {
    Ok(world.purge(PurgeTarget::Run(parse_id(run))).await?)
}

async fn purge_execution(world: &CheckContext<'_>, number: u8) -> Result<bool, ConformanceFailure> {
    Ok(world
        .purge(PurgeTarget::Execution(numbered_execution(number)))
        .await?)
}

/// Returns the dump without the run `r`.
fn without_run(mut dump: StoreDump) -> StoreDump {
    dump.heads.retain(|head| head.run_id != parse_id("r"));
    dump.events
        .retain(|record| record.event.run_id != parse_id("r"));
    for table in [RunSnapshotRow::TABLE, crate::tables::AlertRow::TABLE] {
        retain_rows(&mut dump, table, |values| {
            !values.contains(&ColumnValue::Text("r".into()))
        });
    }
    dump
}

/// Returns the dump without execution 1.
fn without_execution(mut dump: StoreDump) -> StoreDump {
    dump.journals.retain(|(of, _)| *of != numbered_execution(1));
    for table in [
        crate::tables::ExecutionRow::TABLE,
        InboxMessageRow::TABLE,
        TaskRow::TABLE,
    ] {
        retain_rows(&mut dump, table, |values| {
            !values.contains(&numbered_execution(1).to_value())
        });
    }
    dump
}

fn retain_rows(
    dump: &mut StoreDump,
    table: &'static TableSchema,
    wanted: impl Fn(&[ColumnValue]) -> bool,
) {
    if let Some(rows) = dump.rows.get_mut(table.name) {
        rows.retain(|stored| wanted(&stored.row.0));
    }
}

async fn purging_a_run_removes_its_events_its_head_and_its_snapshot(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_store(world).await?;
    expect_same(
        "the result of the purge",
        purge_run(world, "r").await?,
        true,
    )?;
    expect_same(
        "the events",
        world.read_sequences("r", 0, 9).await?,
        Vec::new(),
    )?;
    expect_same("the head", world.read_run_head(&parse_id("r")).await?, None)?;
    expect_same(
        "the snapshot",
        world
            .read_row(
                RunSnapshotRow::TABLE,
                fixtures::record_key(&current_snapshot_row("r", 1, "{}")),
            )
            .await?,
        None,
    )?;
    let listed: Vec<_> = world
        .list_run_heads(None, None, 9)
        .await?
        .into_iter()
        .map(|head| head.run_id)
        .collect();
    expect_same("the runs", listed, vec![parse_id("s")])
}

async fn purging_a_run_changes_nothing_else(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let before = world.dump_store().await?;
    purge_run(world, "r").await?;
    expect_same(
        "the stored data",
        world.dump_store().await?,
        without_run(before),
    )
}

async fn purging_a_run_keeps_runs_with_similar_names(world: &CheckContext<'_>) -> CheckResult {
    let similar = ["R", "r1", "r ", " r", "r%", "%", "_", "r_", "r'", "é"];
    for name in similar {
        world.append_event(step_event(name, 1)).await?;
    }
    for absent in ["r", "e\u{301}", "r__", "%%"] {
        expect_same(
            "the result of the purge",
            purge_run(world, absent).await?,
            false,
        )?;
    }
    expect_same(
        "the result of the purge",
        purge_run(world, "%").await?,
        true,
    )?;
    expect_same(
        "the number of remaining runs",
        world.list_run_heads(None, None, 99).await?.len(),
        similar.len() - 1,
    )
}

async fn purging_a_missing_run_returns_false(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let before = world.dump_store().await?;
    expect_same(
        "the result of the purge",
        purge_run(world, "unknown").await?,
        false,
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn purging_a_run_twice_returns_false(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    expect_same("the first result", purge_run(world, "r").await?, true)?;
    expect_same("the second result", purge_run(world, "r").await?, false)
}

async fn a_purged_run_starts_again_with_sequence_1(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    purge_run(world, "r").await?;
    let answers = world.append_events(step_events("r", 7, 8)).await?;
    expect_same(
        "the sequences",
        answers.iter().map(|it| it.result.run_seq).collect(),
        vec![run_sequence(1), run_sequence(2)],
    )?;
    expect_same(
        "the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1, 2],
    )
}

async fn a_purged_run_starts_again_without_reader_positions(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_store(world).await?;
    purge_run(world, "r").await?;
    world.append_event(step_event("r", 1)).await?;
    expect_same(
        "the position",
        world.expect_head("r").await?.delivered_seq,
        RunSeq::ZERO,
    )
}

async fn a_purged_run_starts_again_with_current_timestamps(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.manual_clock().set(timestamp_after_ms(50_000));
    fill_store(world).await?;
    purge_run(world, "r").await?;
    world.manual_clock().set(timestamp_after_ms(10));
    expect_same(
        "the timestamp",
        world
            .append_event(step_event("r", 1))
            .await?
            .result
            .persisted_at,
        timestamp_after_ms(10),
    )
}

async fn an_event_of_a_purged_run_is_new_when_sent_again(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    purge_run(world, "r").await?;
    let answer = world.append_event(step_event("r", 2)).await?.result;
    expect_same(
        "sequence and persisted",
        (answer.run_seq, answer.persisted),
        (run_sequence(1), true),
    )
}

async fn a_snapshot_without_a_run_is_purged_with_its_run_id(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&current_snapshot_row("r", 1, "{}")))
        .await?;
    expect_same(
        "the result of the purge",
        purge_run(world, "r").await?,
        true,
    )?;
    expect_same(
        "the snapshots",
        world
            .scan_rows(TableScan::all_rows::<RunSnapshotRow>())
            .await?,
        Vec::new(),
    )
}

async fn an_alert_of_a_purged_run_can_be_raised_again(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let again = || Commit::new().insert_or_keep(&gap_alert_row("once"));
    let kept = world.commit(again()).await?;
    expect_same(
        "whether the alert is raised twice",
        kept.changes == [ChangeOutcome::Applied],
        false,
    )?;
    purge_run(world, "r").await?;
    expect_same(
        "whether the alert is raised for the new run",
        world.commit(again()).await?.changes,
        vec![ChangeOutcome::Applied],
    )
}

async fn purging_an_execution_removes_all_its_data(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    expect_same(
        "the result of the purge",
        purge_execution(world, 1).await?,
        true,
    )?;
    expect_same(
        "the chunks",
        world.read_journal(numbered_execution(1), 0, 9).await?,
        Vec::new(),
    )?;
    let row = world
        .read_row(
            crate::tables::ExecutionRow::TABLE,
            fixtures::record_key(&running_execution_row(1, None)),
        )
        .await?;
    expect_same("the row", row, None)?;
    expect_same(
        "the number of remaining tasks",
        world
            .scan_rows(TableScan::all_rows::<TaskRow>())
            .await?
            .len(),
        2,
    )?;
    expect_same(
        "the number of remaining messages",
        world
            .scan_rows(TableScan::all_rows::<InboxMessageRow>())
            .await?
            .len(),
        2,
    )
}

async fn purging_an_execution_changes_nothing_else(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let before = world.dump_store().await?;
    purge_execution(world, 1).await?;
    expect_same(
        "the stored data",
        world.dump_store().await?,
        without_execution(before),
    )
}

async fn purging_a_missing_execution_returns_false(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let before = world.dump_store().await?;
    expect_same(
        "the result of the purge",
        purge_execution(world, 9).await?,
        false,
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn purging_an_execution_twice_returns_false(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    expect_same("the first result", purge_execution(world, 1).await?, true)?;
    expect_same("the second result", purge_execution(world, 1).await?, false)
}

async fn a_purged_execution_starts_again_with_event_0(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    purge_execution(world, 1).await?;
    let conflict = CommitConflict::JournalLength {
        execution: numbered_execution(1),
        expected: 2,
        found: 0,
    };
    expect_refused(
        world
            .commit(Commit::new().append_journal(numbered_append(1, 2, 1)))
            .await,
        conflict,
    )?;
    world
        .commit(
            Commit::new()
                .append_journal(numbered_append(1, 0, 1))
                .insert(&running_execution_row(1, None)),
        )
        .await?;
    expect_same(
        "the chunks",
        world.read_journal(numbered_execution(1), 0, 9).await?.len(),
        1,
    )
}

async fn a_start_key_can_be_reused_after_its_execution_is_purged(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_store(world).await?;
    purge_execution(world, 1).await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&running_execution_row(3, Some("order-1"))))
        .await?;
    expect_same("the outcome", receipt.changes, vec![ChangeOutcome::Applied])
}

async fn a_dedup_key_can_be_reused_after_its_execution_is_purged(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_store(world).await?;
    purge_execution(world, 1).await?;
    let receipt = world
        .commit(Commit::new().insert_or_keep(&signal_message_row(1, Some("key"))))
        .await?;
    expect_same("the outcome", receipt.changes, vec![ChangeOutcome::Applied])
}

async fn serials_are_not_reused_after_a_purge(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let last = |rows: Vec<StoredRow>| rows.last().map(|stored| stored.row.0[0].clone());
    let before = last(
        world
            .scan_rows(TableScan::all_rows::<InboxMessageRow>())
            .await?,
    );
    purge_execution(world, 1).await?;
    purge_execution(world, 2).await?;
    world
        .commit(Commit::new().insert(&signal_message_row(3, None)))
        .await?;
    let after = last(
        world
            .scan_rows(TableScan::all_rows::<InboxMessageRow>())
            .await?,
    );
    expect_holds(&format!("{after:?} comes after {before:?}"), after > before)
}

async fn an_execution_without_a_journal_is_purged(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&running_execution_row(1, None)))
        .await?;
    expect_same(
        "the result of the purge",
        purge_execution(world, 1).await?,
        true,
    )
}

async fn a_journal_without_an_execution_is_purged(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().append_journal(numbered_append(1, 0, 1)))
        .await?;
    expect_same(
        "the result of the purge",
        purge_execution(world, 1).await?,
        true,
    )
}

async fn tasks_and_messages_without_an_execution_are_purged(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(
            Commit::new()
                .insert(&queued_task_row(1, 1))
                .insert(&signal_message_row(2, None)),
        )
        .await?;
    expect_same(
        "whether there was a task",
        purge_execution(world, 1).await?,
        true,
    )?;
    expect_same(
        "whether there was a message",
        purge_execution(world, 2).await?,
        true,
    )?;
    expect_same(
        "the tasks",
        world.scan_rows(TableScan::all_rows::<TaskRow>()).await?,
        Vec::new(),
    )?;
    expect_same(
        "the messages",
        world
            .scan_rows(TableScan::all_rows::<InboxMessageRow>())
            .await?,
        Vec::new(),
    )
}

async fn a_second_handle_does_not_read_purged_data(world: &CheckContext<'_>) -> CheckResult {
    fill_store(world).await?;
    let pair = world.open_handle_pair().await?;
    expect_holds(
        "the second handle reads the run",
        pair.second_handle()
            .read_run_head(&parse_id("r"))
            .await?
            .is_some(),
    )?;
    purge_run(world, "r").await?;
    expect_same(
        "the head",
        pair.second_handle().read_run_head(&parse_id("r")).await?,
        None,
    )?;
    expect_same(
        "a sequence",
        pair.second_handle()
            .append_event(step_event("r", 1))
            .await?
            .result
            .run_seq,
        run_sequence(1),
    )
}
