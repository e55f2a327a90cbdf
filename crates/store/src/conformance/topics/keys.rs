//! Events that contradict their idempotency key or themselves, under every policy.

use onward_runs::{Accept, IdempotencyKey, verify};

use super::prelude::*;
use crate::KeyCheck;

super::checks!(Keys:
    a_right_key_is_accepted_under_every_policy,
    a_wrong_key_is_refused_unless_told_otherwise,
    a_wrong_key_is_refused_with_the_right_one,
    a_wrong_key_is_named_by_its_place_in_the_call,
    a_wrong_key_is_stored_as_it_is_when_only_warned_about,
    a_wrong_key_is_stored_as_it_is_when_keys_are_not_checked,
    a_key_that_is_not_checked_still_makes_repeats,
    a_v1_key_is_refused_unless_told_otherwise,
    a_v1_key_is_accepted_when_logs_are_imported,
    a_v1_key_makes_repeats,
    a_v2_key_is_accepted_when_logs_are_imported,
    a_wrong_key_is_refused_when_logs_are_imported,
    the_key_of_an_event_that_a_signal_caused_is_checked_with_the_signal,
    a_key_of_another_run_is_refused,
    a_step_event_without_a_step_is_refused_under_every_policy,
    a_run_event_with_a_step_is_refused_under_every_policy,
    a_payload_that_is_no_object_is_refused_under_every_policy,
    a_signal_named_by_half_is_refused_under_every_policy,
);

const POLICIES: [KeyCheck; 3] = [KeyCheck::Off, KeyCheck::Warn, KeyCheck::Reject];

const fn checking(keys: KeyCheck) -> Policy {
    Policy {
        keys,
        accept_v1_keys: false,
        limits: crate::Limits { event_bytes_max: 9_999, record_bytes_max: 9_999, changes_max: 99, page_max: 99 },
    }
}

const fn importing() -> Policy {
    Policy { accept_v1_keys: true, ..checking(KeyCheck::Reject) }
}

fn with_wrong_key(number: u32) -> RunEventWrite {
    RunEventWrite { idempotency_key: IdempotencyKey::from_bytes([9; 32]), ..event("r", number) }
}

fn with_v1_key(number: u32) -> RunEventWrite {
    let event = event("r", number);
    RunEventWrite { idempotency_key: IdempotencyKey::v1(&event), ..event }
}

/// The event is refused for its key, and nothing is stored.
async fn is_refused(world: &World<'_>, event: RunEventWrite) -> Verdict {
    let mismatch = some("a mismatch", verify(&event, Accept::V2Only).err())?;
    refused(world.append_event(event).await, Invalid::IdempotencyKey { index: 0, mismatch })?;
    same("the runs", world.runs(None, None, 9).await?, Vec::new())
}

/// The event is stored with the key it came with.
async fn is_stored(world: &World<'_>, event: RunEventWrite) -> Verdict {
    holds("the event is new", world.append_event(event.clone()).await?.result.persisted)?;
    let kept: Vec<_> = world.log("r").await?.into_iter().map(|record| record.event).collect();
    same("the log", kept, vec![event])
}

async fn a_right_key_is_accepted_under_every_policy(world: &World<'_>) -> Verdict {
    for keys in POLICIES {
        is_stored(&world.fresh(checking(keys)).await?, event("r", 1)).await?;
    }
    Ok(())
}

async fn a_wrong_key_is_refused_unless_told_otherwise(world: &World<'_>) -> Verdict {
    is_refused(world, with_wrong_key(1)).await
}

async fn a_wrong_key_is_refused_with_the_right_one(world: &World<'_>) -> Verdict {
    let answer = world.append_event(with_wrong_key(1)).await;
    let Err(Error::Invalid(Invalid::IdempotencyKey { mismatch, .. })) = answer else {
        return Err(Failure::new(format!("the answer is {answer:?}")));
    };
    same("the key that was expected", mismatch.expected, event("r", 1).idempotency_key)
}

async fn a_wrong_key_is_named_by_its_place_in_the_call(world: &World<'_>) -> Verdict {
    let batch = vec![event("r", 1), event("r", 2), with_wrong_key(3), event("r", 4)];
    let mismatch = some("a mismatch", verify(&batch[2], Accept::V2Only).err())?;
    refused(world.append_events(batch).await, Invalid::IdempotencyKey { index: 2, mismatch })?;
    same("the runs", world.runs(None, None, 9).await?, Vec::new())
}

async fn a_wrong_key_is_stored_as_it_is_when_only_warned_about(world: &World<'_>) -> Verdict {
    is_stored(&world.fresh(checking(KeyCheck::Warn)).await?, with_wrong_key(1)).await
}

async fn a_wrong_key_is_stored_as_it_is_when_keys_are_not_checked(world: &World<'_>) -> Verdict {
    is_stored(&world.fresh(checking(KeyCheck::Off)).await?, with_wrong_key(1)).await
}

async fn a_key_that_is_not_checked_still_makes_repeats(world: &World<'_>) -> Verdict {
    for keys in [KeyCheck::Off, KeyCheck::Warn] {
        let world = world.fresh(checking(keys)).await?;
        is_stored(&world, with_wrong_key(1)).await?;
        let answer = world.append_event(with_wrong_key(2)).await?.result;
        same("event id and idempotent", (answer.event_id, answer.idempotent), (event("r", 1).event_id, true))?;
    }
    Ok(())
}

async fn a_v1_key_is_refused_unless_told_otherwise(world: &World<'_>) -> Verdict {
    is_refused(world, with_v1_key(1)).await
}

async fn a_v1_key_is_accepted_when_logs_are_imported(world: &World<'_>) -> Verdict {
    is_stored(&world.fresh(importing()).await?, with_v1_key(1)).await
}

async fn a_v1_key_makes_repeats(world: &World<'_>) -> Verdict {
    let world = world.fresh(importing()).await?;
    is_stored(&world, with_v1_key(1)).await?;
    same("idempotent", world.append_event(with_v1_key(1)).await?.result.idempotent, true)
}

async fn a_v2_key_is_accepted_when_logs_are_imported(world: &World<'_>) -> Verdict {
    is_stored(&world.fresh(importing()).await?, event("r", 1)).await
}

async fn a_wrong_key_is_refused_when_logs_are_imported(world: &World<'_>) -> Verdict {
    is_refused(&world.fresh(importing()).await?, with_wrong_key(1)).await
}

async fn the_key_of_an_event_that_a_signal_caused_is_checked_with_the_signal(world: &World<'_>) -> Verdict {
    let paused = RunEventWrite { event_type: id("RunPaused"), step_id: None, ..event("r", 1) };
    let signal = r#"{"signalType":"PAUSE","signalId":"s-1"}"#;
    let unsigned = RunEventWrite { idempotency_key: IdempotencyKey::v2(&paused), ..paused.clone() };
    is_refused(world, RunEventWrite { payload: Some(sample::json(signal)), ..unsigned }).await?;
    is_stored(world, sample::carrying(paused, signal)).await
}

async fn a_key_of_another_run_is_refused(world: &World<'_>) -> Verdict {
    is_refused(world, RunEventWrite { idempotency_key: event("s", 1).idempotency_key, ..event("r", 1) }).await
}

/// The event is refused for its shape, whatever the policy says about keys.
async fn is_malformed(world: &World<'_>, event: RunEventWrite) -> Verdict {
    let reason = some("a complaint", event.check_shape().err())?.to_string();
    for keys in POLICIES {
        let world = world.fresh(checking(keys)).await?;
        let answer = world.append_events(vec![sample::event("r", 1), event.clone()]).await;
        refused(answer, Invalid::Event { index: 1, reason: reason.clone() })?;
        same("the runs", world.runs(None, None, 9).await?, Vec::new())?;
    }
    Ok(())
}

async fn a_step_event_without_a_step_is_refused_under_every_policy(world: &World<'_>) -> Verdict {
    is_malformed(world, sample::keyed(RunEventWrite { step_id: None, ..event("r", 2) })).await
}

async fn a_run_event_with_a_step_is_refused_under_every_policy(world: &World<'_>) -> Verdict {
    is_malformed(world, sample::keyed(RunEventWrite { event_type: id("RunStarted"), ..event("r", 2) })).await
}

async fn a_payload_that_is_no_object_is_refused_under_every_policy(world: &World<'_>) -> Verdict {
    for payload in ["null", "[]", "1", "\"{}\""] {
        is_malformed(world, RunEventWrite { payload: Some(sample::json(payload)), ..event("r", 2) }).await?;
    }
    Ok(())
}

async fn a_signal_named_by_half_is_refused_under_every_policy(world: &World<'_>) -> Verdict {
    for payload in [r#"{"signalType":"PAUSE"}"#, r#"{"signalId":"s-1"}"#] {
        is_malformed(world, RunEventWrite { payload: Some(sample::json(payload)), ..event("r", 2) }).await?;
    }
    Ok(())
}
