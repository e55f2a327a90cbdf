//! Checks that no two events share an idempotency key in their run, an id in the store, or a
//! sequence number in their run.

use std::collections::BTreeSet;

use super::prelude::*;
use crate::{IdempotencyKeyCheck, PurgeTarget};

super::checks!(Uniqueness:
    a_key_is_stored_once_in_a_run,
    a_key_in_another_run_is_another_event,
    an_event_id_belongs_to_one_event_of_a_run,
    an_event_id_belongs_to_one_event_of_all_runs,
    an_event_id_is_reserved_for_the_rest_of_its_batch,
    an_event_id_is_reserved_for_other_runs_of_its_batch,
    an_event_id_can_be_reused_after_its_run_is_purged,
    an_event_id_of_a_rejected_commit_can_be_used,
    a_duplicate_key_takes_precedence_over_a_taken_event_id,
    a_duplicate_with_another_event_id_does_not_reserve_that_id,
    the_rejection_of_an_event_names_its_index,
    of_concurrent_events_with_one_id_exactly_one_is_stored,
    concurrent_appends_get_different_sequence_numbers,
);

async fn a_key_is_stored_once_in_a_run(world: &CheckContext<'_>) -> CheckResult {
    for _ in 0..3 {
        world.append_event(step_event("r", 1)).await?;
    }
    let keys: Vec<_> = world
        .read_log("r")
        .await?
        .iter()
        .map(|record| record.event.idempotency_key)
        .collect();
    expect_same(
        "the keys in the log",
        keys,
        vec![step_event("r", 1).idempotency_key],
    )
}

async fn a_key_in_another_run_is_another_event(world: &CheckContext<'_>) -> CheckResult {
    let world = world
        .open_another(StorePolicy {
            key_check: IdempotencyKeyCheck::Off,
            ..StorePolicy::default()
        })
        .await?;
    let (first, second) = (step_event("r", 1), step_event("s", 1));
    world.append_event(first.clone()).await?;
    let answer = world
        .append_event(RunEventWrite {
            idempotency_key: first.idempotency_key,
            ..second
        })
        .await?;
    expect_same(
        "idempotent and persisted",
        (answer.result.idempotent, answer.result.persisted),
        (false, true),
    )?;
    expect_same(
        "the sequences in the second run",
        world.read_sequences("s", 0, 9).await?,
        vec![1],
    )
}

/// Events 1 and 2 of a run, where the second has the id of the first.
fn events_with_same_id() -> [RunEventWrite; 2] {
    let first = step_event("r", 1);
    let second = RunEventWrite {
        event_id: first.event_id,
        ..step_event("r", 2)
    };
    [first, second]
}

fn event_id_conflict(index: usize, event: &RunEventWrite) -> CommitConflict {
    CommitConflict::EventIdTaken {
        index,
        event_id: event.event_id,
    }
}

async fn an_event_id_belongs_to_one_event_of_a_run(world: &CheckContext<'_>) -> CheckResult {
    let [first, second] = events_with_same_id();
    world.append_event(first).await?;
    expect_refused(
        world.append_event(second.clone()).await,
        event_id_conflict(0, &second),
    )?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 9).await?,
        vec![1],
    )
}

async fn an_event_id_belongs_to_one_event_of_all_runs(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    let second = RunEventWrite {
        event_id: step_event("r", 1).event_id,
        ..step_event("s", 1)
    };
    expect_refused(
        world.append_event(second.clone()).await,
        event_id_conflict(0, &second),
    )?;
    expect_same(
        "the head of the second run",
        world.read_run_head(&parse_id("s")).await?,
        None,
    )
}

async fn an_event_id_is_reserved_for_the_rest_of_its_batch(
    world: &CheckContext<'_>,
) -> CheckResult {
    let [first, second] = events_with_same_id();
    expect_refused(
        world.append_events(vec![first, second.clone()]).await,
        event_id_conflict(1, &second),
    )?;
    expect_same(
        "the head of the run",
        world.read_run_head(&parse_id("r")).await?,
        None,
    )
}

async fn an_event_id_is_reserved_for_other_runs_of_its_batch(
    world: &CheckContext<'_>,
) -> CheckResult {
    let first = step_event("r", 1);
    let second = RunEventWrite {
        event_id: first.event_id,
        ..step_event("s", 1)
    };
    expect_refused(
        world.append_events(vec![first, second.clone()]).await,
        event_id_conflict(1, &second),
    )
}

async fn an_event_id_can_be_reused_after_its_run_is_purged(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_event(step_event("r", 1)).await?;
    world.purge(PurgeTarget::Run(parse_id("r"))).await?;
    let heir = RunEventWrite {
        event_id: step_event("r", 1).event_id,
        ..step_event("s", 1)
    };
    expect_holds(
        "the event is stored",
        world.append_event(heir).await?.result.persisted,
    )
}

async fn an_event_id_of_a_rejected_commit_can_be_used(world: &CheckContext<'_>) -> CheckResult {
    let stale = Commit::new()
        .fence_shard(crate::ShardId(1), crate::ShardEpoch(9))
        .append_events(step_events("r", 1, 1));
    expect_holds("the commit is rejected", world.commit(stale).await.is_err())?;
    expect_holds(
        "the event is stored",
        world
            .append_event(step_event("r", 1))
            .await?
            .result
            .persisted,
    )
}

async fn a_duplicate_key_takes_precedence_over_a_taken_event_id(
    world: &CheckContext<'_>,
) -> CheckResult {
    world.append_events(step_events("r", 1, 2)).await?;
    let repeat = RunEventWrite {
        event_id: step_event("r", 2).event_id,
        ..step_event("r", 1)
    };
    let answer = world.append_event(repeat).await?.result;
    expect_same(
        "event id and sequence",
        (answer.event_id, answer.run_seq),
        (step_event("r", 1).event_id, run_sequence(1)),
    )
}

async fn a_duplicate_with_another_event_id_does_not_reserve_that_id(
    world: &CheckContext<'_>,
) -> CheckResult {
    let other = fixtures::event_id("elsewhere", 1);
    world.append_event(step_event("r", 1)).await?;
    let repeat = world
        .append_event(RunEventWrite {
            event_id: other,
            ..step_event("r", 1)
        })
        .await?
        .result;
    expect_same(
        "the id in the receipt",
        repeat.event_id,
        step_event("r", 1).event_id,
    )?;
    let user = world
        .append_event(RunEventWrite {
            event_id: other,
            ..step_event("r", 2)
        })
        .await?
        .result;
    expect_same(
        "the id in the next receipt",
        (user.event_id, user.persisted),
        (other, true),
    )
}

async fn the_rejection_of_an_event_names_its_index(world: &CheckContext<'_>) -> CheckResult {
    world.append_event(step_event("s", 1)).await?;
    let mut batch = step_events("r", 1, 5);
    batch[3].event_id = step_event("s", 1).event_id;
    let error = event_id_conflict(3, &batch[3]);
    expect_refused(world.append_events(batch).await, error)
}

async fn of_concurrent_events_with_one_id_exactly_one_is_stored(
    world: &CheckContext<'_>,
) -> CheckResult {
    let one_id = |number: usize| {
        let run = format!("r{number}");
        RunEventWrite {
            event_id: fixtures::event_id("shared", 1),
            ..step_event(&run, 1)
        }
    };
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(8, |store, number| store.append_event(one_id(number)))
        .await;
    expect_same(
        "the number of stored events",
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
    )?;
    for answer in answers.into_iter().filter(Result::is_err) {
        expect_refused(answer, event_id_conflict(0, &one_id(0)))?;
    }
    expect_same(
        "the number of runs",
        world.list_run_heads(None, None, 99).await?.len(),
        1,
    )
}

async fn concurrent_appends_get_different_sequence_numbers(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let number = |number: usize| u32::try_from(number).unwrap_or(0);
    let answers = pair
        .race_calls(32, |store, nth| {
            store.append_event(step_event("r", number(nth)))
        })
        .await;
    let mut places = BTreeSet::new();
    for answer in answers {
        places.insert(answer?.result.run_seq);
    }
    expect_same("the number of different sequences", places.len(), 32)
}
