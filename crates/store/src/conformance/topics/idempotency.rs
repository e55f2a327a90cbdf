//! A repeat is answered with what the first was given, and changes nothing.

use onward_runs::{Attempt, EmittedAt};

use super::prelude::*;
use crate::conformance::sample::{carrying, job, step};

super::checks!(Idempotency:
    a_new_event_is_said_to_be_new,
    a_repeat_is_answered_with_the_first_answer,
    a_hundred_repeats_are_answered_with_the_first_answer,
    a_repeat_is_recognised_long_after,
    a_repeat_keeps_the_first_stamp,
    a_repeated_batch_is_answered_as_the_first_time,
    a_batch_that_overlaps_adds_only_what_is_new,
    a_repeat_within_a_batch_is_answered_with_the_first,
    a_repeat_within_a_batch_that_differs_is_reported,
    a_repeat_with_another_payload_keeps_the_first_and_is_reported,
    a_repeat_with_a_payload_for_none_is_reported,
    a_repeat_without_the_payload_is_reported,
    a_repeat_of_another_type_is_reported,
    a_repeat_about_another_step_is_reported,
    every_differing_repeat_is_reported,
    members_in_another_order_do_not_differ,
    white_space_does_not_differ,
    elements_in_another_order_differ,
    numbers_that_differ_in_their_last_digit_differ,
    huge_numbers_in_another_order_do_not_differ,
    a_repeat_from_another_engine_attempt_is_a_repeat,
    a_repeat_emitted_later_is_a_repeat,
    another_logical_attempt_is_another_event,
    another_signal_is_another_event,
    the_same_signal_again_is_a_repeat,
    the_rest_of_a_commit_goes_on_beside_a_repeat,
    a_repeat_adds_nothing_to_the_outbox,
    a_repeat_leaves_the_head_as_it_is,
    a_repeat_under_a_stale_fence_is_refused,
    an_event_of_a_refused_commit_is_new_the_next_time,
    racing_writers_of_one_key_store_it_once,
    racing_writers_of_different_payloads_agree_on_one,
    racing_batches_of_the_same_events_store_each_once,
);

async fn a_new_event_is_said_to_be_new(world: &World<'_>) -> Verdict {
    let answer = world.append_event(event("r", 1)).await?;
    let said = (answer.result.idempotent, answer.result.persisted, answer.differs, answer.result.event_id);
    same("idempotent, persisted, differs, id", said, (false, true, false, event("r", 1).event_id))
}

/// Repeats an event, and expects the first answer every time.
async fn repeat(world: &World<'_>, times: usize) -> Verdict {
    let first = world.append_event(event("r", 1)).await?;
    for _ in 0..times {
        let again = world.append_event(event("r", 1)).await?;
        same("the answer to the repeat", again, repeated(&first))?;
    }
    same("the places in the log", world.places("r", 0, 9).await?, vec![1])
}

/// The answer that a repeat gets to which this was the first answer.
fn repeated(first: &Appended) -> Appended {
    let result = onward_runs::AppendResult { idempotent: true, persisted: false, ..first.result };
    Appended { result, differs: false }
}

async fn a_repeat_is_answered_with_the_first_answer(world: &World<'_>) -> Verdict {
    repeat(world, 1).await
}

async fn a_hundred_repeats_are_answered_with_the_first_answer(world: &World<'_>) -> Verdict {
    repeat(world, 100).await
}

async fn a_repeat_is_recognised_long_after(world: &World<'_>) -> Verdict {
    let first = world.append_event(event("r", 1)).await?;
    world.append_events(events("r", 2, 1_500)).await?;
    same("the answer to the repeat", world.append_event(event("r", 1)).await?, repeated(&first))
}

async fn a_repeat_keeps_the_first_stamp(world: &World<'_>) -> Verdict {
    let first = world.append_event(event("r", 1)).await?;
    world.clock().advance_ms(60_000);
    let again = world.append_event(event("r", 1)).await?;
    same("the stamp in the answer", again.result.persisted_at, first.result.persisted_at)?;
    same("the stamp in the log", world.log("r").await?[0].persisted_at, first.result.persisted_at)
}

async fn a_repeated_batch_is_answered_as_the_first_time(world: &World<'_>) -> Verdict {
    let first = world.append_events(events("r", 1, 5)).await?;
    let again = world.append_events(events("r", 1, 5)).await?;
    same("the answers", again, first.iter().map(repeated).collect())?;
    same("the places in the log", world.places("r", 0, 9).await?, vec![1, 2, 3, 4, 5])
}

async fn a_batch_that_overlaps_adds_only_what_is_new(world: &World<'_>) -> Verdict {
    world.append_events(events("r", 1, 3)).await?;
    let answers = world.append_events(events("r", 2, 5)).await?;
    let said: Vec<_> = answers.iter().map(|answer| (answer.result.run_seq.get(), answer.result.persisted)).collect();
    same("places, and whether they are new", said, vec![(2, false), (3, false), (4, true), (5, true)])
}

async fn a_repeat_within_a_batch_is_answered_with_the_first(world: &World<'_>) -> Verdict {
    let answers = world.append_events(vec![event("r", 1), event("r", 1), event("r", 1)]).await?;
    let first = some("the first answer", answers.first().cloned())?;
    holds("the first is new", first.result.persisted)?;
    same("the others", answers[1..].to_vec(), vec![repeated(&first), repeated(&first)])?;
    same("the places in the log", world.places("r", 0, 9).await?, vec![1])
}

async fn a_repeat_within_a_batch_that_differs_is_reported(world: &World<'_>) -> Verdict {
    let batch = vec![carrying(event("r", 1), "{\"a\":1}"), carrying(event("r", 1), "{\"a\":2}")];
    let answers = world.append_events(batch.clone()).await?;
    same("which differ", answers.iter().map(|answer| answer.differs).collect(), vec![false, true])?;
    same("what is kept", world.log("r").await?[0].event.clone(), batch[0].clone())
}

/// Appends an event with one payload and again with another, and expects the first to be kept.
async fn contradict(world: &World<'_>, first: Option<&str>, second: Option<&str>, expected: bool) -> Verdict {
    let with = |text: Option<&str>| RunEventWrite { payload: text.map(sample::json), ..event("r", 1) };
    world.append_event(with(first)).await?;
    let answer = world.append_event(with(second)).await?;
    same("whether it is a repeat", (answer.result.idempotent, answer.result.persisted), (true, false))?;
    same("whether it differs", answer.differs, expected)?;
    let kept: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("what is kept", kept, vec![with(first)])
}

async fn a_repeat_with_another_payload_keeps_the_first_and_is_reported(world: &World<'_>) -> Verdict {
    contradict(world, Some("{\"a\":1}"), Some("{\"a\":2}"), true).await
}

async fn a_repeat_with_a_payload_for_none_is_reported(world: &World<'_>) -> Verdict {
    contradict(world, None, Some("{}"), true).await
}

async fn a_repeat_without_the_payload_is_reported(world: &World<'_>) -> Verdict {
    contradict(world, Some("{}"), None, true).await
}

/// Where keys are not checked, an event can repeat the key of one that says something else.
async fn contradict_by_key(world: &World<'_>, second: RunEventWrite) -> Verdict {
    let world = world.fresh(Policy { keys: crate::KeyCheck::Off, ..Policy::default() }).await?;
    world.append_event(event("r", 1)).await?;
    let answer = world.append_event(second).await?;
    same("repeat, differs", (answer.result.idempotent, answer.differs), (true, true))?;
    let kept: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("what is kept", kept, vec![event("r", 1)])
}

async fn a_repeat_of_another_type_is_reported(world: &World<'_>) -> Verdict {
    contradict_by_key(world, RunEventWrite { event_type: id("StepFailed"), ..event("r", 1) }).await
}

async fn a_repeat_about_another_step_is_reported(world: &World<'_>) -> Verdict {
    contradict_by_key(world, RunEventWrite { step_id: Some(id("another")), ..event("r", 1) }).await
}

async fn every_differing_repeat_is_reported(world: &World<'_>) -> Verdict {
    world.append_event(carrying(event("r", 1), "{\"a\":1}")).await?;
    for payload in ["{\"a\":2}", "{\"a\":2}", "{\"a\":\"1\"}", "{\"a\":null}", "{\"A\":1}", "{\"a\":1,\"b\":0}"] {
        let answer = world.append_event(carrying(event("r", 1), payload)).await?;
        same(payload, answer.differs, true)?;
    }
    same("the first again", world.append_event(carrying(event("r", 1), "{\"a\":1}")).await?.differs, false)
}

async fn members_in_another_order_do_not_differ(world: &World<'_>) -> Verdict {
    let (one, other) = (r#"{"a":1,"b":{"c":[1,{"d":2,"e":3}],"f":4}}"#, r#"{"b":{"f":4,"c":[1,{"e":3,"d":2}]},"a":1}"#);
    contradict(world, Some(one), Some(other), false).await
}

async fn white_space_does_not_differ(world: &World<'_>) -> Verdict {
    contradict(world, Some("{\"a\":[1,2]}"), Some(" {\n\"a\" : [ 1,\t2 ] } "), false).await
}

async fn elements_in_another_order_differ(world: &World<'_>) -> Verdict {
    contradict(world, Some("{\"a\":[1,2]}"), Some("{\"a\":[2,1]}"), true).await
}

async fn numbers_that_differ_in_their_last_digit_differ(world: &World<'_>) -> Verdict {
    let (one, other) = (r#"{"a":123456789012345678901234567890}"#, r#"{"a":123456789012345678901234567891}"#);
    contradict(world, Some(one), Some(other), true).await
}

async fn huge_numbers_in_another_order_do_not_differ(world: &World<'_>) -> Verdict {
    contradict(world, Some(r#"{"a":1e400,"b":2}"#), Some(r#"{"b":2,"a":1e400}"#), false).await
}

async fn a_repeat_from_another_engine_attempt_is_a_repeat(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let retry = RunEventWrite { engine_attempt_id: Attempt::MAX, ..event("r", 1) };
    let answer = world.append_event(retry).await?;
    same("repeat, differs", (answer.result.idempotent, answer.differs), (true, false))?;
    same("the attempt kept", world.log("r").await?[0].event.engine_attempt_id, Attempt::FIRST)
}

async fn a_repeat_emitted_later_is_a_repeat(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let retry = RunEventWrite { emitted_at: EmittedAt::from(at(9_000)), ..event("r", 1) };
    same("repeat", world.append_event(retry).await?.result.idempotent, true)?;
    same("the instant kept", world.log("r").await?[0].event.emitted_at.at(), at(0))
}

async fn another_logical_attempt_is_another_event(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let next = Attempt::FIRST.next().unwrap_or(Attempt::MAX);
    let retry = RunEventWrite { logical_attempt_id: next, event_id: event("r", 2).event_id, ..event("r", 1) };
    same("the place", world.append_event(sample::keyed(retry)).await?.result.run_seq, seq(2))
}

/// The run is paused by a signal.
fn paused_by(signal: &str, number: u32) -> RunEventWrite {
    let paused = RunEventWrite { event_type: id("RunPaused"), step_id: None, ..event("r", number) };
    carrying(paused, &format!(r#"{{"signalType":"PAUSE","signalId":"{signal}"}}"#))
}

async fn another_signal_is_another_event(world: &World<'_>) -> Verdict {
    world.append_event(paused_by("first", 1)).await?;
    let second = world.append_event(paused_by("second", 2)).await?.result;
    same("place and persisted", (second.run_seq, second.persisted), (seq(2), true))
}

async fn the_same_signal_again_is_a_repeat(world: &World<'_>) -> Verdict {
    world.append_event(paused_by("first", 1)).await?;
    let again = world.append_event(paused_by("first", 2)).await?.result;
    same("place and persisted", (again.run_seq, again.persisted), (seq(1), false))
}

async fn the_rest_of_a_commit_goes_on_beside_a_repeat(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let commit = Commit::new().insert(&job("j")).journal(append(1, 0, 2)).events(events("r", 1, 1));
    world.commit(commit).await?;
    holds("the row is there", world.row(crate::tables::Job::TABLE, sample::key_of(&job("j"))).await?.is_some())?;
    same("the chunks", world.journal(sample::execution(1), 0, 9).await?.len(), 1)
}

async fn a_repeat_adds_nothing_to_the_outbox(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    world.commit(Commit::new().advance(step("r", Reader::EventBus, 0, 1))).await?;
    world.append_event(event("r", 1)).await?;
    same("runs with something to deliver", world.runs(Some(Reader::EventBus), None, 9).await?, Vec::new())
}

async fn a_repeat_leaves_the_head_as_it_is(world: &World<'_>) -> Verdict {
    world.append_events(events("r", 1, 2)).await?;
    let before = world.head("r").await?;
    world.clock().advance_ms(60_000);
    world.append_event(event("r", 1)).await?;
    same("the head", world.head("r").await?, before)
}

async fn a_repeat_under_a_stale_fence_is_refused(world: &World<'_>) -> Verdict {
    world.append_event(event("r", 1)).await?;
    let stale = Commit::new().fence(crate::Shard(1), crate::Epoch(1)).events(events("r", 1, 1));
    let given = crate::Epoch(1);
    refused(world.commit(stale).await, Conflict::Fenced { shard: crate::Shard(1), held: crate::Epoch::NONE, given })
}

async fn an_event_of_a_refused_commit_is_new_the_next_time(world: &World<'_>) -> Verdict {
    let stale = Commit::new().fence(crate::Shard(1), crate::Epoch(1)).events(events("r", 1, 1));
    holds("the commit is refused", world.commit(stale).await.is_err())?;
    let answer = world.append_event(event("r", 1)).await?.result;
    same("place and persisted", (answer.run_seq, answer.persisted), (seq(1), true))
}

async fn racing_writers_of_one_key_store_it_once(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for number in 1..=4 {
        let answers = pair.race(32, |store, _| store.append_event(event("r", number))).await;
        let answers: Vec<Appended> = answers.into_iter().collect::<Result<_, _>>()?;
        same("how many were stored", answers.iter().filter(|answer| answer.result.persisted).count(), 1)?;
        let first = some("an answer", answers.first().cloned())?;
        for answer in answers {
            same("an answer but for the flags", repeated(&answer), repeated(&first))?;
        }
    }
    same("the places in the log", world.places("r", 0, 9).await?, vec![1, 2, 3, 4])
}

async fn racing_writers_of_different_payloads_agree_on_one(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let saying = |nth: usize| carrying(event("r", 1), &format!("{{\"a\":{nth}}}"));
    let answers = pair.race(32, |store, nth| store.append_event(saying(nth))).await;
    let answers: Vec<Appended> = answers.into_iter().collect::<Result<_, _>>()?;
    let winner = some("a winner", answers.iter().position(|answer| answer.result.persisted))?;
    same("how many differ", answers.iter().filter(|answer| answer.differs).count(), 31)?;
    let kept: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("what is kept", kept, vec![saying(winner)])
}

async fn racing_batches_of_the_same_events_store_each_once(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let batch = |nth: usize| {
        let mut batch = events("r", 1, 4);
        batch.rotate_left(nth % 4);
        batch
    };
    let answers = pair.race(16, |store, nth| store.append_events(batch(nth))).await;
    let answers: Vec<Vec<Appended>> = answers.into_iter().collect::<Result<_, _>>()?;
    same("how many were stored", answers.iter().flatten().filter(|answer| answer.result.persisted).count(), 4)?;
    same("the places in the log", world.places("r", 0, 9).await?, vec![1, 2, 3, 4])
}
