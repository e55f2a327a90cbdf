//! Checks of unique columns: conflicts, values that become free, and the order of the checks.

use super::prelude::*;
use super::rows::read_messages;
use crate::conformance::fixtures::{
    record_key, reserved_item_row, running_execution_row, signal_message_row,
};
use crate::tables::{ExecutionRow, OutboxItemRow};

super::checks!(Rows:
    an_update_does_not_conflict_with_its_own_unique_values,
    an_update_may_change_unique_values,
    an_update_frees_old_unique_values,
    a_delete_frees_unique_values,
    unique_values_are_checked_against_the_state_before_the_commit,
    a_row_with_null_in_a_unique_column_is_exempt,
    an_update_to_null_frees_unique_values,
    unique_values_that_differ_in_the_first_column_do_not_conflict,
    an_insert_with_two_conflicts_reports_the_key,
    equal_unique_values_in_one_commit_are_rejected,
    an_empty_idempotency_key_of_an_outbox_item_is_rejected,
);

pub(super) fn not_unique_conflict<R: TableRecord>(holder: &R) -> CommitConflict {
    CommitConflict::NotUnique {
        table: R::TABLE.name,
        columns: R::TABLE.unique[0],
        key: record_key(holder),
    }
}

async fn an_update_does_not_conflict_with_its_own_unique_values(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn an_update_may_change_unique_values(world: &CheckContext<'_>) -> CheckResult {
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

async fn an_update_frees_old_unique_values(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_delete_frees_unique_values(world: &CheckContext<'_>) -> CheckResult {
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

async fn unique_values_are_checked_against_the_state_before_the_commit(
    world: &CheckContext<'_>,
) -> CheckResult {
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
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_row_with_null_in_a_unique_column_is_exempt(world: &CheckContext<'_>) -> CheckResult {
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

async fn an_update_to_null_frees_unique_values(world: &CheckContext<'_>) -> CheckResult {
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

async fn unique_values_that_differ_in_the_first_column_do_not_conflict(
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

async fn an_insert_with_two_conflicts_reports_the_key(world: &CheckContext<'_>) -> CheckResult {
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

async fn equal_unique_values_in_one_commit_are_rejected(world: &CheckContext<'_>) -> CheckResult {
    let twice = Commit::new()
        .insert(&signal_message_row(1, Some("key")))
        .insert_or_keep(&signal_message_row(1, Some("key")));
    let what = "the same execution_id, dedup_key of inbox".to_owned();
    expect_refused(
        world.commit(twice).await,
        InvalidRequest::TouchedTwice(what),
    )?;
    expect_same("the stored data", read_messages(world).await?, Vec::new())
}

async fn an_empty_idempotency_key_of_an_outbox_item_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    let error = InvalidRequest::Value {
        table: OutboxItemRow::TABLE.name,
        column: "idempotency_key",
        reason: "the text must not be empty",
    };
    let item = reserved_item_row("a", "");
    expect_refused(world.commit(Commit::new().insert(&item)).await, error)
}
