//! Checks of atomicity by example: whole commits, receipts, the first error that is reported,
//! dropped futures and concurrent commits.

use futures_util::FutureExt as _;

use super::commit_faults::{COMMIT_PARTS, CommitFault, prepare_store};
use super::prelude::*;
use crate::conformance::fixtures::{
    numbered_execution, queued_job_row, queued_task_row, reserved_item_row,
};
use crate::tables::{JobRow, TaskRow};
use crate::{ShardEpoch, ShardId};

super::checks!(Atomicity:
    a_commit_with_every_kind_of_part_is_stored_completely,
    an_empty_commit_is_accepted_and_stores_nothing,
    a_repeated_commit_changes_nothing,
    a_receipt_has_one_result_for_each_part,
    the_first_failed_guard_is_reported,
    the_first_rejected_event_is_reported,
    a_dropped_future_stores_the_whole_commit_or_nothing,
    a_dropped_future_leaves_no_open_transaction,
    of_concurrent_commits_on_one_row_exactly_one_is_stored,
    concurrent_commits_on_the_same_rows_in_different_orders_do_not_deadlock,
);

async fn a_commit_with_every_kind_of_part_is_stored_completely(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    world
        .commit(COMMIT_PARTS.iter().fold(
            Commit::new().fence_shard(ShardId(1), ShardEpoch(4)),
            |commit, part| part.add_to(commit),
        ))
        .await?;
    expect_same(
        "the chunks",
        world.read_journal(numbered_execution(1), 0, 9).await?.len(),
        2,
    )?;
    let row =
        |name: &str| world.read_row(JobRow::TABLE, fixtures::record_key(&queued_job_row(name)));
    expect_holds("the inserted row is stored", row("new").await?.is_some())?;
    expect_holds(
        "the existing row is stored",
        world
            .read_row(TaskRow::TABLE, fixtures::record_key(&queued_task_row(1, 1)))
            .await?
            .is_some(),
    )?;
    expect_same(
        "the version of the updated row",
        row("updated").await?.map(|stored| stored.version),
        Some(2),
    )?;
    expect_same("the deleted row", row("deleted").await?, None)?;
    expect_same("the deleted row", row("deleted_if_exists").await?, None)?;
    let head = world.expect_head("r").await?;
    let positions = (head.last_seq, head.projected_seq, head.delivered_seq);
    expect_same(
        "last sequence and positions",
        positions,
        (run_sequence(5), run_sequence(1), run_sequence(3)),
    )?;
    expect_same(
        "the sequences in the new run",
        world.read_sequences("new", 0, 9).await?,
        vec![1, 2],
    )
}

async fn an_empty_commit_is_accepted_and_stores_nothing(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let before = world.dump_store().await?;
    expect_same(
        "the receipt",
        world.commit(Commit::new()).await?,
        crate::CommitReceipt::default(),
    )?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_repeated_commit_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let whole = COMMIT_PARTS.iter().fold(
        Commit::new().fence_shard(ShardId(1), ShardEpoch(4)),
        |commit, part| part.add_to(commit),
    );
    world.commit(whole.clone()).await?;
    let before = world.dump_store().await?;
    let conflict = CommitConflict::JournalLength {
        execution: numbered_execution(1),
        expected: 2,
        found: 3,
    };
    expect_refused(world.commit(whole).await, conflict)?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_receipt_has_one_result_for_each_part(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let commit = Commit::new()
        .insert_or_keep(&queued_job_row("known"))
        .insert(&queued_job_row("new"))
        .insert_or_keep(&reserved_item_row("other", "taken"))
        .delete(&queued_job_row("deleted"), 1)
        .delete_if_exists::<JobRow>(fixtures::record_key(&queued_job_row("deleted_if_exists")))
        .delete_if_exists::<JobRow>(fixtures::record_key(&queued_job_row("absent")))
        .append_events(vec![
            step_event("r", 4),
            step_event("r", 2),
            step_event("r", 5),
        ]);
    let receipt = world.commit(commit).await?;
    let kept = |row| ChangeOutcome::Kept(StoredRow { row, version: 1 });
    let holder = reserved_item_row("holder", "taken").to_row();
    let mut outcomes = vec![
        kept(queued_job_row("known").to_row()),
        ChangeOutcome::Applied,
        kept(holder),
    ];
    outcomes.extend([
        ChangeOutcome::Applied,
        ChangeOutcome::Applied,
        ChangeOutcome::Applied,
    ]);
    expect_same("changes", receipt.changes, outcomes)?;
    let places: Vec<u64> = receipt
        .events
        .iter()
        .map(|answer| answer.result.run_seq.as_u64())
        .collect();
    expect_same("sequences", places, vec![4, 2, 5])
}

async fn the_first_failed_guard_is_reported(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let in_order = [
        CommitFault::StaleFence,
        CommitFault::JournalTooLong,
        CommitFault::StaleUpdate,
        CommitFault::WrongReaderPosition,
        CommitFault::EventIdTaken,
    ];
    for first in 0..in_order.len() {
        let rest = in_order[first..].iter().rev();
        let commit = rest.fold(Commit::new(), |commit, fault| fault.add_to(commit));
        expect_refused(
            world.commit(commit).await,
            in_order[first].expected_error(0),
        )?;
    }
    Ok(())
}

async fn the_first_rejected_event_is_reported(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let faults = [CommitFault::EventIdTaken, CommitFault::ForeignRun];
    for (first, second) in [(faults[0], faults[1]), (faults[1], faults[0])] {
        let commit =
            second.add_to(first.add_to(Commit::new().append_events(step_events("r", 4, 5))));
        expect_refused(world.commit(commit).await, first.expected_error(2))?;
    }
    Ok(())
}

/// Polls a commit once and drops its future.
async fn drop_commit_midway(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let commit = Commit::new()
        .append_journal(numbered_append(1, 2, 1))
        .insert(&queued_job_row("new"))
        .append_events(step_events("new", 1, 2));
    drop(world.commit(commit).now_or_never());
    Ok(())
}

async fn a_dropped_future_stores_the_whole_commit_or_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    drop_commit_midway(world).await?;
    // The store may still complete the commit during these reads. Once one part is visible, later
    // reads must show the others.
    let row =
        |name: &str| world.read_row(JobRow::TABLE, fixtures::record_key(&queued_job_row(name)));
    for _ in 0..20 {
        if row("new").await?.is_some() {
            expect_same(
                "the chunks",
                world.read_journal(numbered_execution(1), 0, 9).await?.len(),
                2,
            )?;
        }
        if world.read_journal(numbered_execution(1), 0, 9).await?.len() == 2 {
            expect_same(
                "the sequences in the new run",
                world.read_sequences("new", 0, 9).await?,
                vec![1, 2],
            )?;
        }
        if world.read_run_head(&parse_id("new")).await?.is_some() {
            expect_holds("the row exists", row("new").await?.is_some())?;
        }
    }
    Ok(())
}

async fn a_dropped_future_leaves_no_open_transaction(world: &CheckContext<'_>) -> CheckResult {
    for number in 10..14 {
        let commit = Commit::new()
            .insert(&queued_job_row(&format!("dropped-{number}")))
            .append_events(step_events("dropped", number, number));
        drop(world.commit(commit).now_or_never());
    }
    world
        .commit(
            Commit::new()
                .insert(&queued_job_row("next"))
                .append_events(step_events("r", 1, 1)),
        )
        .await?;
    let pair = world.open_handle_pair().await?;
    let seen = pair
        .second_handle()
        .read_row(JobRow::TABLE, fixtures::record_key(&queued_job_row("next")))
        .await?;
    expect_holds("every handle reads the next commit", seen.is_some())
}

async fn of_concurrent_commits_on_one_row_exactly_one_is_stored(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    let pair = world.open_handle_pair().await?;
    let racer = |nth: usize| {
        let name = format!("by-{nth}");
        let attempts = u32::try_from(nth).unwrap_or(0);
        Commit::new()
            .update(
                &JobRow {
                    attempts,
                    ..queued_job_row("known")
                },
                1,
            )
            .insert(&queued_job_row(&name))
            .append_events(step_events(&name, 1, 1))
    };
    let answers = pair
        .race_calls(16, |store, nth| store.commit(racer(nth)))
        .await;
    let winner = expect_some("a successful call", answers.iter().position(Result::is_ok))?;
    expect_same(
        "the number of successful calls",
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
    )?;
    let rows = crate::conformance::store_dump::read_all_rows(world.store(), JobRow::TABLE).await?;
    let added: Vec<_> = rows
        .iter()
        .filter(
            |stored| matches!(&stored.row.0[0], ColumnValue::Text(name) if name.starts_with("by-")),
        )
        .collect();
    expect_same("the rows that the calls inserted", added.len(), 1)?;
    let runs = world
        .list_run_heads(None, None, 99)
        .await?
        .into_iter()
        .map(|head| head.run_id)
        .collect::<Vec<_>>();
    expect_same(
        "the runs",
        runs,
        vec![parse_id(&format!("by-{winner}")), parse_id("r")],
    )
}

async fn concurrent_commits_on_the_same_rows_in_different_orders_do_not_deadlock(
    world: &CheckContext<'_>,
) -> CheckResult {
    let names = ["a", "b", "c", "d"];
    world
        .commit(names.iter().fold(Commit::new(), |commit, name| {
            commit.insert(&queued_job_row(name))
        }))
        .await?;
    let pair = world.open_handle_pair().await?;
    for version in 1..=4 {
        let racer = |nth: usize| {
            let mut commit = names.iter().fold(Commit::new(), |commit, name| {
                commit.update(&queued_job_row(name), version)
            });
            commit.changes.rotate_left(nth % 4);
            commit
        };
        let answers = pair
            .race_calls(8, |store, nth| store.commit(racer(nth)))
            .await;
        expect_same(
            "the number of successful calls",
            answers.iter().filter(|answer| answer.is_ok()).count(),
            1,
        )?;
        let conflicts = answers
            .into_iter()
            .filter_map(Result::err)
            .filter(|error| error.kind() == StoreErrorKind::Conflict);
        expect_same("the number of conflicts", conflicts.count(), 7)?;
    }
    let versions: Vec<u64> =
        crate::conformance::store_dump::read_all_rows(world.store(), JobRow::TABLE)
            .await?
            .iter()
            .map(|stored| stored.version)
            .collect();
    expect_same("the versions", versions, vec![5; 4])
}
