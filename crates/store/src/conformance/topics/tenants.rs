//! Whose run it is: the first event says so, and nobody else can add to it, not even by a repeat.

use super::prelude::*;
use crate::Purge;
use crate::conformance::sample::{item, started};
use crate::tables::{Execution, OutboxItem};

super::checks!(Tenants:
    an_event_of_another_tenant_is_refused,
    an_event_of_another_project_is_refused,
    an_event_of_another_environment_is_refused,
    a_repeat_by_another_tenant_is_refused_and_told_nothing,
    two_tenants_cannot_begin_a_run_in_one_batch,
    the_foreign_event_is_named_by_its_place_in_the_call,
    a_foreign_event_stops_the_events_of_other_runs_in_its_batch,
    racing_tenants_leave_the_run_to_one_of_them,
    a_purged_run_may_begin_again_with_another_tenant,
    tenants_that_differ_in_case_are_two_tenants,
    a_start_key_is_unique_within_tenant_project_environment_and_function,
    an_outbox_key_is_unique_within_tenant_and_workspace,
);

fn foreign(index: usize) -> Conflict {
    Conflict::ForeignRun { index, run: id("r") }
}

/// A run of two events refuses this third one, and stays as it is.
async fn is_refused(world: &World<'_>, event: RunEventWrite) -> Verdict {
    world.append_events(events("r", 1, 2)).await?;
    let before = world.dump().await?;
    refused(world.append_event(event).await, foreign(0))?;
    same("what is stored", world.dump().await?, before)
}

async fn an_event_of_another_tenant_is_refused(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { tenant_id: id("other"), ..event("r", 3) }).await
}

async fn an_event_of_another_project_is_refused(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { project_id: id("other"), ..event("r", 3) }).await
}

async fn an_event_of_another_environment_is_refused(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { environment_id: id("other"), ..event("r", 3) }).await
}

async fn a_repeat_by_another_tenant_is_refused_and_told_nothing(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { tenant_id: id("other"), ..event("r", 1) }).await
}

async fn two_tenants_cannot_begin_a_run_in_one_batch(world: &World<'_>) -> Verdict {
    let other = RunEventWrite { tenant_id: id("other"), ..event("r", 2) };
    refused(world.append_events(vec![event("r", 1), other]).await, foreign(1))?;
    same("the head", world.run(&id("r")).await?, None)
}

async fn the_foreign_event_is_named_by_its_place_in_the_call(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let other = RunEventWrite { tenant_id: id("other"), ..event("r", 2) };
    refused(world.append_events(vec![event("s", 1), event("r", 3), event("s", 2), other]).await, foreign(3))
}

async fn a_foreign_event_stops_the_events_of_other_runs_in_its_batch(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let other = RunEventWrite { tenant_id: id("other"), ..event("r", 2) };
    holds("it is refused", world.append_events(vec![event("s", 1), other, event("t", 1)]).await.is_err())?;
    let runs: Vec<_> = world.runs(None, None, 9).await?.into_iter().map(|head| head.run_id).collect();
    same("the runs", runs, vec![id("r")])
}

async fn racing_tenants_leave_the_run_to_one_of_them(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let by = |nth: usize| {
        let number = u32::try_from(nth).unwrap_or(0);
        RunEventWrite { tenant_id: id(&format!("tenant-{}", nth % 3)), ..event("r", number) }
    };
    let answers = pair.race(12, |store, nth| store.append_event(by(nth))).await;
    let owner = world.head("r").await?.tenant_id;
    for (nth, answer) in answers.into_iter().enumerate() {
        if by(nth).tenant_id == owner {
            answer?;
        } else {
            refused(answer, foreign(0))?;
        }
    }
    holds("the log is the owner's", world.log("r").await?.iter().all(|record| record.event.tenant_id == owner))
}

async fn a_purged_run_may_begin_again_with_another_tenant(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    world.purge(Purge::Run(id("r"))).await?;
    world.append_event(RunEventWrite { tenant_id: id("other"), ..event("r", 1) }).await?;
    same("whose run it is", world.head("r").await?.tenant_id, id("other"))
}

async fn tenants_that_differ_in_case_are_two_tenants(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { tenant_id: id("ACME"), ..event("r", 3) }).await
}

async fn a_start_key_is_unique_within_tenant_project_environment_and_function(world: &World<'_>) -> Verdict {
    let first = started(1, Some("order"));
    world.commit(Commit::new().insert(&first)).await?;
    let others = [
        Execution { tenant_id: id("other"), ..started(2, Some("order")) },
        Execution { project_id: id("other"), ..started(3, Some("order")) },
        Execution { environment_id: id("other"), ..started(4, Some("order")) },
        Execution { function: "other".into(), ..started(5, Some("order")) },
    ];
    for other in &others {
        let receipt = world.commit(Commit::new().insert_or_keep(other)).await?;
        same("the outcome", receipt.changes, vec![Outcome::Made])?;
    }
    let receipt = world.commit(Commit::new().insert_or_keep(&started(6, Some("order")))).await?;
    same("the outcome", receipt.changes, vec![Outcome::Kept(Stored { row: first.to_row(), version: 1 })])
}

async fn an_outbox_key_is_unique_within_tenant_and_workspace(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&item("a", "key"))).await?;
    let others = [
        OutboxItem { tenant_id: "other".into(), ..item("b", "key") },
        OutboxItem { workspace_id: "other".into(), ..item("c", "key") },
        item("d", "KEY"),
    ];
    for other in &others {
        world.commit(Commit::new().insert(other)).await?;
    }
    let columns = OutboxItem::TABLE.unique[0];
    let key = sample::key_of(&item("a", "key"));
    let conflict = Conflict::NotUnique { table: OutboxItem::TABLE.name, columns, key };
    refused(world.commit(Commit::new().insert(&item("e", "key"))).await, conflict)
}
