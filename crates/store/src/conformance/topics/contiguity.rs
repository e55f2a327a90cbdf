//! Places count 1, 2, 3 in every run, whatever else happens.

use super::prelude::*;
use crate::conformance::sample::job;

super::checks!(Contiguity:
    the_first_event_has_place_1,
    a_batch_is_numbered_in_its_order,
    a_hundred_single_appends_are_numbered_in_their_order,
    a_thousand_events_in_one_commit_are_numbered_in_their_order,
    batches_go_on_where_the_last_one_ended,
    every_run_counts_for_itself,
    runs_that_alternate_in_a_batch_count_for_themselves,
    a_refused_commit_leaves_no_gap,
    a_refused_event_in_the_middle_of_a_batch_leaves_no_gap,
    a_repeat_leaves_no_gap,
    a_repeat_in_the_middle_of_a_batch_leaves_no_gap,
    racing_appends_leave_no_gap,
    racing_batches_stay_together,
    racing_batches_of_two_runs_leave_no_gap_in_either,
    racing_repeats_and_new_events_leave_no_gap,
    the_head_shows_the_last_place,
    answers_and_log_agree,
    the_other_handle_goes_on_where_this_one_ended,
);

fn places(appended: &[Appended]) -> Vec<u64> {
    appended.iter().map(|answer| answer.result.run_seq.get()).collect()
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

async fn the_first_event_has_place_1(world: &World<'_>) -> Verdict {
    same("the place", world.append_event(event("r", 7)).await?.result.run_seq, seq(1))
}

async fn a_batch_is_numbered_in_its_order(world: &World<'_>) -> Verdict {
    let batch = [3, 1, 2].map(|number| event("r", number));
    same("the places", places(&world.append_events(batch.to_vec()).await?), vec![1, 2, 3])?;
    let stored: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("the log", stored, batch.to_vec())
}

async fn a_hundred_single_appends_are_numbered_in_their_order(world: &World<'_>) -> Verdict {
    for number in 1..=100 {
        let answer = world.append_event(event("r", number)).await?;
        same("the place", answer.result.run_seq, seq(u64::from(number)))?;
    }
    same("the places in the log", world.places("r", 0, 200).await?, (1..=100).collect())
}

async fn a_thousand_events_in_one_commit_are_numbered_in_their_order(world: &World<'_>) -> Verdict {
    let batch = events("r", 1, 1_000);
    same("the places", places(&world.append_events(batch.clone()).await?), (1..=1_000).collect())?;
    let stored: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    holds("the log is the batch", stored == batch)
}

async fn batches_go_on_where_the_last_one_ended(world: &World<'_>) -> Verdict {
    same("the first", places(&world.append_events(events("r", 1, 2)).await?), vec![1, 2])?;
    same("the second", places(&world.append_events(events("r", 3, 5)).await?), vec![3, 4, 5])?;
    same("an empty one", places(&world.append_events(Vec::new()).await?), vec![])?;
    same("the last", places(&world.append_events(events("r", 6, 6)).await?), vec![6])
}

async fn every_run_counts_for_itself(world: &World<'_>) -> Verdict {
    world.append_events(events("r", 1, 5)).await?;
    same("the place in the second run", world.append_event(event("s", 1)).await?.result.run_seq, seq(1))?;
    same("the place in the first run", world.append_event(event("r", 6)).await?.result.run_seq, seq(6))
}

async fn runs_that_alternate_in_a_batch_count_for_themselves(world: &World<'_>) -> Verdict {
    world.append_event(event("s", 9)).await?;
    let batch = vec![event("r", 1), event("s", 1), event("r", 2), event("s", 2), event("r", 3)];
    same("the places", places(&world.append_events(batch).await?), vec![1, 2, 2, 3, 3])?;
    same("the first log", world.places("r", 0, 9).await?, vec![1, 2, 3])?;
    same("the second log", world.places("s", 0, 9).await?, vec![1, 2, 3])
}

async fn a_refused_commit_leaves_no_gap(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j")).events(events("r", 1, 2))).await?;
    let refusal = world.commit(Commit::new().insert(&job("j")).events(events("r", 3, 4))).await;
    holds("the second commit is refused", refusal.is_err())?;
    same("the place of the next event", world.append_event(event("r", 5)).await?.result.run_seq, seq(3))
}

async fn a_refused_event_in_the_middle_of_a_batch_leaves_no_gap(world: &World<'_>) -> Verdict {
    let foreign = RunEventWrite { tenant_id: id("other"), ..event("r", 2) };
    let refusal = world.append_events(vec![event("r", 1), foreign, event("r", 3)]).await;
    holds("the batch is refused", refusal.is_err())?;
    same("the place of the next event", world.append_event(event("r", 4)).await?.result.run_seq, seq(1))
}

async fn a_repeat_leaves_no_gap(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    world.append_event(event("r", 1)).await?;
    same("the place of the next event", world.append_event(event("r", 2)).await?.result.run_seq, seq(2))
}

async fn a_repeat_in_the_middle_of_a_batch_leaves_no_gap(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let batch = vec![event("r", 2), event("r", 1), event("r", 3), event("r", 2), event("r", 4)];
    same("the places", places(&world.append_events(batch).await?), vec![2, 1, 3, 2, 4])?;
    same("the places in the log", world.places("r", 0, 9).await?, vec![1, 2, 3, 4])
}

async fn racing_appends_leave_no_gap(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for answer in pair.race(64, |store, nth| store.append_event(event("r", number(nth)))).await {
        answer?;
    }
    same("the places in the log", world.places("r", 0, 99).await?, (1..=64).collect())
}

async fn racing_batches_stay_together(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let batch = |nth: usize| events("r", number(nth) * 10 + 1, number(nth) * 10 + 5);
    for answer in pair.race(12, |store, nth| store.append_events(batch(nth))).await {
        let places = places(&answer?);
        let first = places.first().copied().unwrap_or_default();
        same("the places of a batch", places, (first..first + 5).collect())?;
    }
    same("the places in the log", world.places("r", 0, 99).await?, (1..=60).collect())
}

async fn racing_batches_of_two_runs_leave_no_gap_in_either(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let batch = |nth: usize| {
        let (one, other) = (event("r", number(nth)), event("s", number(nth)));
        if nth.is_multiple_of(4) { vec![one, other] } else { vec![other, one] }
    };
    for answer in pair.race(16, |store, nth| store.append_events(batch(nth))).await {
        answer?;
    }
    same("the first log", world.places("r", 0, 99).await?, (1..=16).collect())?;
    same("the second log", world.places("s", 0, 99).await?, (1..=16).collect())
}

async fn racing_repeats_and_new_events_leave_no_gap(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for answer in pair.race(48, |store, nth| store.append_event(event("r", number(nth / 3)))).await {
        answer?;
    }
    same("the places in the log", world.places("r", 0, 99).await?, (1..=16).collect())
}

async fn the_head_shows_the_last_place(world: &World<'_>) -> Verdict {
    same("the head before", world.run(&id("r")).await?, None)?;
    for last in 1..=3 {
        world.append_event(event("r", last)).await?;
        same("the last place", world.head("r").await?.last_seq, seq(u64::from(last)))?;
    }
    Ok(())
}

async fn answers_and_log_agree(world: &World<'_>) -> Verdict {
    let answers = world.append_events(events("r", 1, 5)).await?;
    let said: Vec<_> =
        answers.iter().map(|it| (it.result.event_id, it.result.run_seq, it.result.persisted_at)).collect();
    let log = world.log("r").await?;
    let kept: Vec<_> = log.iter().map(|it| (it.event.event_id, it.run_seq, it.persisted_at)).collect();
    same("ids, places and stamps", said, kept)
}

async fn the_other_handle_goes_on_where_this_one_ended(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    world.append_event(event("r", 1)).await?;
    same("through the other", pair.other().append_event(event("r", 2)).await?.result.run_seq, seq(2))?;
    same("through this one", world.append_event(event("r", 3)).await?.result.run_seq, seq(3))?;
    same("a repeat through the other", pair.other().append_event(event("r", 1)).await?.result.run_seq, seq(1))
}
