//! Checks of insert-or-keep: the row is inserted, or the existing row is returned unchanged.

use super::prelude::*;
use super::rows::read_job;
use crate::conformance::fixtures::{
    queued_job_row, record_key, reserved_item_row, running_execution_row,
};
use crate::tables::{ExecutionRow, JobRow};

super::checks!(Rows:
    insert_or_keep_inserts_a_missing_row,
    insert_or_keep_keeps_the_row_with_its_key,
    insert_or_keep_keeps_the_row_with_its_unique_values,
    insert_or_keep_returns_the_latest_version,
    insert_or_keep_prefers_the_row_with_the_same_key,
);

async fn insert_or_keep_inserts_a_missing_row(world: &CheckContext<'_>) -> CheckResult {
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

async fn insert_or_keep_returns_the_latest_version(world: &CheckContext<'_>) -> CheckResult {
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

async fn insert_or_keep_prefers_the_row_with_the_same_key(world: &CheckContext<'_>) -> CheckResult {
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
