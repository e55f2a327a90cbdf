//! Checks of concurrent writes to the same row, key or unique value: one writer wins.

use super::prelude::*;
use super::rows::{read_job, read_messages};
use super::serial_numbers::read_serials;
use crate::conformance::fixtures::{
    numbered_execution, queued_job_row, running_execution_row, signal_message_row,
};
use crate::conformance::store_dump;
use crate::tables::ExecutionRow;

super::checks!(Rows:
    of_concurrent_inserts_of_one_key_exactly_one_succeeds,
    concurrent_starts_create_one_execution,
    concurrent_starts_with_different_ids_create_one_execution,
    of_concurrent_updates_of_one_version_exactly_one_succeeds,
    of_concurrent_deletes_exactly_one_succeeds,
    concurrent_messages_with_one_dedup_key_store_one,
    concurrent_messages_get_different_serials,
);

/// Runs a commit sixteen times concurrently, and expects the store to apply one and the others to
/// conflict.
pub(super) async fn expect_one_winner(
    world: &CheckContext<'_>,
    commit: impl Fn(usize) -> Commit + Sync,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(16, |store, nth| store.commit(commit(nth)))
        .await;
    expect_same(
        "the number of stored events",
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
    )?;
    let conflicts = answers
        .into_iter()
        .filter_map(Result::err)
        .filter(|error| error.kind() == StoreErrorKind::Conflict);
    expect_same("the number of conflicts", conflicts.count(), 15)
}

async fn of_concurrent_inserts_of_one_key_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_one_winner(world, |_| Commit::new().insert(&queued_job_row("j"))).await
}

async fn of_concurrent_updates_of_one_version_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn of_concurrent_deletes_exactly_one_succeeds(world: &CheckContext<'_>) -> CheckResult {
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
        "the number of executions",
        outcomes
            .iter()
            .filter(|outcome| **outcome == ChangeOutcome::Applied)
            .count(),
        1,
    )?;
    let rows = store_dump::read_all_rows(world.store(), ExecutionRow::TABLE).await?;
    expect_same("the number of rows", rows.len(), 1)?;
    for outcome in outcomes
        .into_iter()
        .filter(|outcome| *outcome != ChangeOutcome::Applied)
    {
        expect_same(
            "the result of the other calls",
            outcome,
            ChangeOutcome::Kept(rows[0].clone()),
        )?;
    }
    Ok(())
}

async fn concurrent_starts_create_one_execution(world: &CheckContext<'_>) -> CheckResult {
    expect_one_start(world, |_| 1).await
}

async fn concurrent_starts_with_different_ids_create_one_execution(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_one_start(world, |nth| u8::try_from(nth).unwrap_or(0)).await
}

async fn concurrent_messages_with_one_dedup_key_store_one(world: &CheckContext<'_>) -> CheckResult {
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

async fn concurrent_messages_get_different_serials(world: &CheckContext<'_>) -> CheckResult {
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
    expect_same("the count", serials.len(), 32)?;
    expect_holds(
        "each serial is larger than the previous one",
        serials.is_sorted_by(|one, next| one < next),
    )
}
