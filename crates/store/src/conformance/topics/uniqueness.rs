//! No two events share a key in their run, an id anywhere, or a place.

use std::collections::BTreeSet;

use super::prelude::*;
use crate::{KeyCheck, Purge};

super::checks!(Uniqueness:
    a_key_is_stored_once_in_a_run,
    the_same_key_in_another_run_is_another_event,
    an_event_id_belongs_to_one_event_of_a_run,
    an_event_id_belongs_to_one_event_of_all_runs,
    an_event_id_is_taken_for_the_rest_of_its_batch,
    an_event_id_is_taken_for_other_runs_of_its_batch,
    an_event_id_is_free_again_when_its_run_is_purged,
    an_event_id_of_a_refused_commit_is_still_free,
    a_repeated_key_counts_before_a_taken_id,
    a_repeat_under_another_id_leaves_that_id_free,
    the_refused_event_is_named_by_its_place_in_the_call,
    racing_events_with_one_id_leave_one_of_them,
    racing_appends_never_share_a_place,
);

async fn a_key_is_stored_once_in_a_run(world: &World<'_>) -> Verdict {
    for _ in 0..3 {
        world.append_event(event("r", 1)).await?;
    }
    let keys: Vec<_> = world.log("r").await?.iter().map(|record| record.event.idempotency_key).collect();
    same("the keys in the log", keys, vec![event("r", 1).idempotency_key])
}

async fn the_same_key_in_another_run_is_another_event(world: &World<'_>) -> Verdict {
    let world = world.fresh(Policy { keys: KeyCheck::Off, ..Policy::default() }).await?;
    let (first, second) = (event("r", 1), event("s", 1));
    world.append_event(first.clone()).await?;
    let answer = world.append_event(RunEventWrite { idempotency_key: first.idempotency_key, ..second }).await?;
    same("idempotent and persisted", (answer.result.idempotent, answer.result.persisted), (false, true))?;
    same("the places in the second run", world.places("s", 0, 9).await?, vec![1])
}

/// Events 1 and 2 of a run, the second under the id of the first.
fn twins() -> [RunEventWrite; 2] {
    let first = event("r", 1);
    let second = RunEventWrite { event_id: first.event_id, ..event("r", 2) };
    [first, second]
}

fn taken(index: usize, event: &RunEventWrite) -> Conflict {
    Conflict::EventIdTaken { index, event_id: event.event_id }
}

async fn an_event_id_belongs_to_one_event_of_a_run(world: &World<'_>) -> Verdict {
    let [first, second] = twins();
    world.append_event(first).await?;
    refused(world.append_event(second.clone()).await, taken(0, &second))?;
    same("the places in the log", world.places("r", 0, 9).await?, vec![1])
}

async fn an_event_id_belongs_to_one_event_of_all_runs(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let second = RunEventWrite { event_id: event("r", 1).event_id, ..event("s", 1) };
    refused(world.append_event(second.clone()).await, taken(0, &second))?;
    same("the head of the second run", world.run(&id("s")).await?, None)
}

async fn an_event_id_is_taken_for_the_rest_of_its_batch(world: &World<'_>) -> Verdict {
    let [first, second] = twins();
    refused(world.append_events(vec![first, second.clone()]).await, taken(1, &second))?;
    same("the head of the run", world.run(&id("r")).await?, None)
}

async fn an_event_id_is_taken_for_other_runs_of_its_batch(world: &World<'_>) -> Verdict {
    let first = event("r", 1);
    let second = RunEventWrite { event_id: first.event_id, ..event("s", 1) };
    refused(world.append_events(vec![first, second.clone()]).await, taken(1, &second))
}

async fn an_event_id_is_free_again_when_its_run_is_purged(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    world.purge(Purge::Run(id("r"))).await?;
    let heir = RunEventWrite { event_id: event("r", 1).event_id, ..event("s", 1) };
    holds("the event is stored", world.append_event(heir).await?.result.persisted)
}

async fn an_event_id_of_a_refused_commit_is_still_free(world: &World<'_>) -> Verdict {
    let stale = Commit::new().fence(crate::Shard(1), crate::Epoch(9)).events(events("r", 1, 1));
    holds("the commit is refused", world.commit(stale).await.is_err())?;
    holds("the event is stored", world.append_event(event("r", 1)).await?.result.persisted)
}

async fn a_repeated_key_counts_before_a_taken_id(world: &World<'_>) -> Verdict {
    world.append_events(events("r", 1, 2)).await?;
    let repeat = RunEventWrite { event_id: event("r", 2).event_id, ..event("r", 1) };
    let answer = world.append_event(repeat).await?.result;
    same("event id and place", (answer.event_id, answer.run_seq), (event("r", 1).event_id, seq(1)))
}

async fn a_repeat_under_another_id_leaves_that_id_free(world: &World<'_>) -> Verdict {
    let other = sample::event_id("elsewhere", 1);
    world.append_event(event("r", 1)).await?;
    let repeat = world.append_event(RunEventWrite { event_id: other, ..event("r", 1) }).await?.result;
    same("the id in the answer", repeat.event_id, event("r", 1).event_id)?;
    let user = world.append_event(RunEventWrite { event_id: other, ..event("r", 2) }).await?.result;
    same("the id in the next answer", (user.event_id, user.persisted), (other, true))
}

async fn the_refused_event_is_named_by_its_place_in_the_call(world: &World<'_>) -> Verdict {
    world.append_event(event("s", 1)).await?;
    let mut batch = events("r", 1, 5);
    batch[3].event_id = event("s", 1).event_id;
    let error = taken(3, &batch[3]);
    refused(world.append_events(batch).await, error)
}

async fn racing_events_with_one_id_leave_one_of_them(world: &World<'_>) -> Verdict {
    let one_id = |number: usize| {
        let run = format!("r{number}");
        RunEventWrite { event_id: sample::event_id("shared", 1), ..event(&run, 1) }
    };
    let pair = world.pair().await?;
    let answers = pair.race(8, |store, number| store.append_event(one_id(number))).await;
    same("how many were stored", answers.iter().filter(|answer| answer.is_ok()).count(), 1)?;
    for answer in answers.into_iter().filter(Result::is_err) {
        refused(answer, taken(0, &one_id(0)))?;
    }
    same("how many runs there are", world.runs(None, None, 99).await?.len(), 1)
}

async fn racing_appends_never_share_a_place(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let number = |number: usize| u32::try_from(number).unwrap_or(0);
    let answers = pair.race(32, |store, nth| store.append_event(event("r", number(nth)))).await;
    let mut places = BTreeSet::new();
    for answer in answers {
        places.insert(answer?.result.run_seq);
    }
    same("how many different places were given", places.len(), 32)
}
