//! Checks of serial numbers: order, no reuse, and rows that are addressed by them.

use super::prelude::*;
use super::rows::read_messages;
use crate::SerialId;
use crate::conformance::fixtures::{gap_alert_row, record_key, signal_message_row};
use crate::tables::{AlertRow, InboxMessageRow};

super::checks!(Rows:
    serials_increase,
    serials_follow_the_order_of_the_commit,
    a_serial_is_not_reused_after_the_last_row_is_deleted,
    a_serial_is_not_reused_after_all_rows_are_deleted,
    insert_or_keep_returns_the_serial_of_the_kept_row,
    rows_with_a_serial_and_no_dedup_key_are_all_stored,
    a_row_with_a_serial_is_updated_by_its_serial,
    an_insert_with_a_chosen_serial_is_rejected,
);

pub(super) async fn read_serials(world: &CheckContext<'_>) -> Result<Vec<i64>, ConformanceFailure> {
    Ok(read_messages(world)
        .await?
        .into_iter()
        .filter_map(|message| message.message_id.0)
        .collect())
}

async fn serials_increase(world: &CheckContext<'_>) -> CheckResult {
    for _ in 0..12 {
        world
            .commit(Commit::new().insert(&signal_message_row(1, None)))
            .await?;
    }
    let serials = read_serials(world).await?;
    expect_same("the count", serials.len(), 12)?;
    expect_holds(
        "each serial is larger than the previous one",
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
        "a serial number",
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

async fn a_serial_is_not_reused_after_the_last_row_is_deleted(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_no_serial_reuse(world, 1).await
}

async fn a_serial_is_not_reused_after_all_rows_are_deleted(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_no_serial_reuse(world, 3).await
}

async fn insert_or_keep_returns_the_serial_of_the_kept_row(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn rows_with_a_serial_and_no_dedup_key_are_all_stored(
    world: &CheckContext<'_>,
) -> CheckResult {
    for _ in 0..3 {
        world
            .commit(Commit::new().insert_or_keep(&signal_message_row(1, None)))
            .await?;
    }
    let several = Commit::new()
        .insert_or_keep(&signal_message_row(1, None))
        .insert_or_keep(&signal_message_row(1, None));
    world.commit(several).await?;
    expect_same("the count", read_messages(world).await?.len(), 5)
}

async fn a_row_with_a_serial_is_updated_by_its_serial(world: &CheckContext<'_>) -> CheckResult {
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

async fn an_insert_with_a_chosen_serial_is_rejected(world: &CheckContext<'_>) -> CheckResult {
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
