//! Checks of column updates: updates of some columns of a row, guarded by its version.

use onward_campaign_core::ItemStatus;

use super::prelude::*;
use super::row_races::expect_one_winner;
use super::rows::read_job;
use super::unique_columns::not_unique_conflict;
use crate::conformance::fixtures::{queued_job_row, record_key, reserved_item_row};
use crate::tables::{JobRow, OutboxItemRow};

super::checks!(Rows:
    of_concurrent_column_updates_of_one_version_exactly_one_succeeds,
    a_column_update_keeps_concurrent_changes_of_other_columns,
    an_insert_beside_a_column_update_is_checked_before_the_commit,
    a_stale_column_update_rejects_the_whole_commit,
    a_stale_column_update_does_not_affect_other_commits,
);

/// Returns a job with an error message.
fn job_with_error(name: &str) -> JobRow {
    JobRow {
        error: Some("550".into()),
        ..queued_job_row(name)
    }
}

async fn of_concurrent_column_updates_of_one_version_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn a_column_update_keeps_concurrent_changes_of_other_columns(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    world
        .commit(Commit::new().update(
            &JobRow {
                sent: 7,
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
                sent: 7,
                ..job_with_error("j")
            },
            3,
        )),
    )
}

async fn an_insert_beside_a_column_update_is_checked_before_the_commit(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "one")))
        .await?;
    let sent = OutboxItemRow {
        status: ItemStatus::Sent,
        ..reserved_item_row("a", "one")
    };
    let column_update = || Commit::new().update_columns(&reserved_item_row("a", "one"), &sent, 1);
    expect_refused(
        world
            .commit(column_update().insert(&reserved_item_row("b", "one")))
            .await,
        not_unique_conflict(&reserved_item_row("a", "one")),
    )?;
    let kept = world
        .commit(column_update().insert_or_keep(&reserved_item_row("b", "one")))
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

async fn a_stale_column_update_rejects_the_whole_commit(world: &CheckContext<'_>) -> CheckResult {
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
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_stale_column_update_does_not_affect_other_commits(
    world: &CheckContext<'_>,
) -> CheckResult {
    const STALE: usize = 7;
    let name = |nth: usize| format!("j{nth:02}");
    world
        .commit((0..16).fold(Commit::new(), |commit, nth| {
            commit.insert(&queued_job_row(&name(nth)))
        }))
        .await?;
    let column_update = |nth: usize| {
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
        .race_calls(16, |store, nth| store.commit(column_update(nth)))
        .await;
    let refused: Vec<usize> = (0..16).filter(|nth| answers[*nth].is_err()).collect();
    expect_same("the index of the rejected commit", refused, vec![STALE])?;
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
