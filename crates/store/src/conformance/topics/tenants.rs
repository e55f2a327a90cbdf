//! Checks of tenant isolation: the first event of a run sets its owner, and no other tenant,
//! project or environment can append to it, not even a duplicate.

use super::prelude::*;
use crate::PurgeTarget;
use crate::conformance::fixtures::{reserved_item_row, running_execution_row};
use crate::tables::{ExecutionRow, OutboxItemRow};

super::checks!(Tenants:
    an_event_of_another_tenant_is_rejected,
    an_event_of_another_project_is_rejected,
    an_event_of_another_environment_is_rejected,
    a_duplicate_from_another_tenant_is_rejected_without_details,
    two_tenants_cannot_start_a_run_in_one_batch,
    the_rejection_of_a_foreign_event_names_its_index,
    a_foreign_event_rejects_the_events_of_other_runs_in_its_batch,
    of_concurrent_tenants_exactly_one_gets_the_run,
    a_purged_run_may_start_again_with_another_tenant,
    tenants_that_differ_in_case_are_different,
    a_start_key_is_unique_within_tenant_project_environment_and_function,
    an_outbox_key_is_unique_within_tenant_and_workspace,
);

fn foreign_run_conflict(index: usize) -> CommitConflict {
    CommitConflict::ForeignRun {
        index,
        run: parse_id("r"),
    }
}

/// Expects a run of two events to reject this third event and to stay unchanged.
async fn expect_foreign_refused(world: &CheckContext<'_>, event: RunEventWrite) -> CheckResult {
    world.append_events(step_events("r", 1, 2)).await?;
    let before = world.dump_store().await?;
    expect_refused(world.append_event(event).await, foreign_run_conflict(0))?;
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn an_event_of_another_tenant_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_foreign_refused(
        world,
        RunEventWrite {
            tenant_id: parse_id("other"),
            ..step_event("r", 3)
        },
    )
    .await
}

async fn an_event_of_another_project_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_foreign_refused(
        world,
        RunEventWrite {
            project_id: parse_id("other"),
            ..step_event("r", 3)
        },
    )
    .await
}

async fn an_event_of_another_environment_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_foreign_refused(
        world,
        RunEventWrite {
            environment_id: parse_id("other"),
            ..step_event("r", 3)
        },
    )
    .await
}

async fn a_duplicate_from_another_tenant_is_rejected_without_details(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_foreign_refused(
        world,
        RunEventWrite {
            tenant_id: parse_id("other"),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn two_tenants_cannot_start_a_run_in_one_batch(world: &CheckContext<'_>) -> CheckResult {
    let other = RunEventWrite {
        tenant_id: parse_id("other"),
        ..step_event("r", 2)
    };
    expect_refused(
        world.append_events(vec![step_event("r", 1), other]).await,
        foreign_run_conflict(1),
    )?;
    expect_same("the head", world.read_run_head(&parse_id("r")).await?, None)
}

async fn the_rejection_of_a_foreign_event_names_its_index(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let other = RunEventWrite {
        tenant_id: parse_id("other"),
        ..step_event("r", 2)
    };
    expect_refused(
        world
            .append_events(vec![
                step_event("s", 1),
                step_event("r", 3),
                step_event("s", 2),
                other,
            ])
            .await,
        foreign_run_conflict(3),
    )
}

async fn a_foreign_event_rejects_the_events_of_other_runs_in_its_batch(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let other = RunEventWrite {
        tenant_id: parse_id("other"),
        ..step_event("r", 2)
    };
    expect_holds(
        "it is rejected",
        world
            .append_events(vec![step_event("s", 1), other, step_event("t", 1)])
            .await
            .is_err(),
    )?;
    let runs: Vec<_> = world
        .list_run_heads(None, None, 9)
        .await?
        .into_iter()
        .map(|head| head.run_id)
        .collect();
    expect_same("the runs", runs, vec![parse_id("r")])
}

async fn of_concurrent_tenants_exactly_one_gets_the_run(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let by = |nth: usize| {
        let number = u32::try_from(nth).unwrap_or(0);
        RunEventWrite {
            tenant_id: parse_id(&format!("tenant-{}", nth % 3)),
            ..step_event("r", number)
        }
    };
    let answers = pair
        .race_calls(12, |store, nth| store.append_event(by(nth)))
        .await;
    let owner = world.expect_head("r").await?.tenant_id;
    for (nth, answer) in answers.into_iter().enumerate() {
        if by(nth).tenant_id == owner {
            answer?;
        } else {
            expect_refused(answer, foreign_run_conflict(0))?;
        }
    }
    expect_holds(
        "the log is the owner's",
        world
            .read_log("r")
            .await?
            .iter()
            .all(|record| record.event.tenant_id == owner),
    )
}

async fn a_purged_run_may_start_again_with_another_tenant(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    world.purge(PurgeTarget::Run(parse_id("r"))).await?;
    world
        .append_event(RunEventWrite {
            tenant_id: parse_id("other"),
            ..step_event("r", 1)
        })
        .await?;
    expect_same(
        "the scope of the run",
        world.expect_head("r").await?.tenant_id,
        parse_id("other"),
    )
}

async fn tenants_that_differ_in_case_are_different(world: &CheckContext<'_>) -> CheckResult {
    expect_foreign_refused(
        world,
        RunEventWrite {
            tenant_id: parse_id("ACME"),
            ..step_event("r", 3)
        },
    )
    .await
}

async fn a_start_key_is_unique_within_tenant_project_environment_and_function(
    world: &CheckContext<'_>,
) -> CheckResult {
    let first = running_execution_row(1, Some("order"));
    world.commit(Commit::new().insert(&first)).await?;
    let others = [
        ExecutionRow {
            tenant_id: parse_id("other"),
            ..running_execution_row(2, Some("order"))
        },
        ExecutionRow {
            project_id: parse_id("other"),
            ..running_execution_row(3, Some("order"))
        },
        ExecutionRow {
            environment_id: parse_id("other"),
            ..running_execution_row(4, Some("order"))
        },
        ExecutionRow {
            function: "other".into(),
            ..running_execution_row(5, Some("order"))
        },
    ];
    for other in &others {
        let receipt = world.commit(Commit::new().insert_or_keep(other)).await?;
        expect_same("the outcome", receipt.changes, vec![ChangeOutcome::Applied])?;
    }
    let receipt = world
        .commit(Commit::new().insert_or_keep(&running_execution_row(6, Some("order"))))
        .await?;
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(StoredRow {
            row: first.to_row(),
            version: 1,
        })],
    )
}

async fn an_outbox_key_is_unique_within_tenant_and_workspace(
    world: &CheckContext<'_>,
) -> CheckResult {
    world
        .commit(Commit::new().insert(&reserved_item_row("a", "key")))
        .await?;
    let others = [
        OutboxItemRow {
            tenant_id: "other".into(),
            ..reserved_item_row("b", "key")
        },
        OutboxItemRow {
            workspace_id: "other".into(),
            ..reserved_item_row("c", "key")
        },
        reserved_item_row("d", "KEY"),
    ];
    for other in &others {
        world.commit(Commit::new().insert(other)).await?;
    }
    let columns = OutboxItemRow::TABLE.unique[0];
    let key = fixtures::record_key(&reserved_item_row("a", "key"));
    let conflict = CommitConflict::NotUnique {
        table: OutboxItemRow::TABLE.name,
        columns,
        key,
    };
    expect_refused(
        world
            .commit(Commit::new().insert(&reserved_item_row("e", "key")))
            .await,
        conflict,
    )
}
