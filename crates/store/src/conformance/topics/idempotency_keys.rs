//! Checks of events that contradict their idempotency key or themselves, under every policy.

use onward_runs::{AcceptedKeyForms, IdempotencyKey, verify_idempotency_key};

use super::prelude::*;
use crate::IdempotencyKeyCheck;

super::checks!(Keys:
    a_correct_key_is_accepted_under_every_policy,
    a_wrong_key_is_rejected_by_default,
    the_rejection_of_a_wrong_key_names_the_expected_one,
    the_rejection_of_a_wrong_key_names_the_index_of_the_event,
    a_wrong_key_is_stored_unchanged_if_the_check_only_warns,
    a_wrong_key_is_stored_unchanged_if_the_check_is_off,
    an_unchecked_key_still_detects_duplicates,
    a_v1_key_is_rejected_by_default,
    a_v1_key_is_accepted_if_v1_keys_are_enabled,
    a_v1_key_detects_duplicates,
    a_v2_key_is_accepted_if_v1_keys_are_enabled,
    a_wrong_key_is_rejected_if_v1_keys_are_enabled,
    the_key_of_a_signal_event_is_checked_with_the_signal,
    a_key_of_another_run_is_rejected,
    a_step_event_without_a_step_is_rejected_under_every_policy,
    a_run_event_with_a_step_is_rejected_under_every_policy,
    a_payload_that_is_not_an_object_is_rejected_under_every_policy,
    an_incomplete_signal_reference_is_rejected_under_every_policy,
);

const KEY_CHECKS: [IdempotencyKeyCheck; 3] = [
    IdempotencyKeyCheck::Off,
    IdempotencyKeyCheck::Warn,
    IdempotencyKeyCheck::Reject,
];

const fn policy_with_key_check(keys: IdempotencyKeyCheck) -> StorePolicy {
    StorePolicy {
        key_check: keys,
        accept_v1_keys: false,
        limits: crate::StoreLimits {
            event_bytes_max: 9_999,
            record_bytes_max: 9_999,
            changes_max: 99,
            page_max: 99,
            journal_page_bytes_max: 9_999,
        },
    }
}

const fn import_policy() -> StorePolicy {
    StorePolicy {
        accept_v1_keys: true,
        ..policy_with_key_check(IdempotencyKeyCheck::Reject)
    }
}

fn with_wrong_key(number: u32) -> RunEventWrite {
    RunEventWrite {
        idempotency_key: IdempotencyKey::from_bytes([9; 32]),
        ..step_event("r", number)
    }
}

fn with_v1_key(number: u32) -> RunEventWrite {
    let event = step_event("r", number);
    RunEventWrite {
        idempotency_key: IdempotencyKey::for_event_v1(&event),
        ..event
    }
}

/// Expects the store to reject the event for its key and to store nothing.
async fn expect_key_refused(world: &CheckContext<'_>, event: RunEventWrite) -> CheckResult {
    let mismatch = expect_some(
        "an error",
        verify_idempotency_key(&event, AcceptedKeyForms::V2Only).err(),
    )?;
    expect_refused(
        world.append_event(event).await,
        InvalidRequest::IdempotencyKey { index: 0, mismatch },
    )?;
    expect_same(
        "the runs",
        world.list_run_heads(None, None, 9).await?,
        Vec::new(),
    )
}

/// Expects the store to keep the event with the key that the caller sent.
async fn expect_key_stored(world: &CheckContext<'_>, event: RunEventWrite) -> CheckResult {
    expect_holds(
        "the event is new",
        world.append_event(event.clone()).await?.result.persisted,
    )?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the log", kept, vec![event])
}

async fn a_correct_key_is_accepted_under_every_policy(world: &CheckContext<'_>) -> CheckResult {
    for keys in KEY_CHECKS {
        expect_key_stored(
            &world.open_another(policy_with_key_check(keys)).await?,
            step_event("r", 1),
        )
        .await?;
    }
    Ok(())
}

async fn a_wrong_key_is_rejected_by_default(world: &CheckContext<'_>) -> CheckResult {
    expect_key_refused(world, with_wrong_key(1)).await
}

async fn the_rejection_of_a_wrong_key_names_the_expected_one(
    world: &CheckContext<'_>,
) -> CheckResult {
    let answer = world.append_event(with_wrong_key(1)).await;
    let Err(Error::Invalid(InvalidRequest::IdempotencyKey { mismatch, .. })) = answer else {
        return Err(ConformanceFailure::new(format!("the answer is {answer:?}")));
    };
    expect_same(
        "the key that was expected",
        mismatch.expected,
        step_event("r", 1).idempotency_key,
    )
}

async fn the_rejection_of_a_wrong_key_names_the_index_of_the_event(
    world: &CheckContext<'_>,
) -> CheckResult {
    let batch = vec![
        step_event("r", 1),
        step_event("r", 2),
        with_wrong_key(3),
        step_event("r", 4),
    ];
    let mismatch = expect_some(
        "an error",
        verify_idempotency_key(&batch[2], AcceptedKeyForms::V2Only).err(),
    )?;
    expect_refused(
        world.append_events(batch).await,
        InvalidRequest::IdempotencyKey { index: 2, mismatch },
    )?;
    expect_same(
        "the runs",
        world.list_run_heads(None, None, 9).await?,
        Vec::new(),
    )
}

async fn a_wrong_key_is_stored_unchanged_if_the_check_only_warns(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_key_stored(
        &world
            .open_another(policy_with_key_check(IdempotencyKeyCheck::Warn))
            .await?,
        with_wrong_key(1),
    )
    .await
}

async fn a_wrong_key_is_stored_unchanged_if_the_check_is_off(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_key_stored(
        &world
            .open_another(policy_with_key_check(IdempotencyKeyCheck::Off))
            .await?,
        with_wrong_key(1),
    )
    .await
}

async fn an_unchecked_key_still_detects_duplicates(world: &CheckContext<'_>) -> CheckResult {
    for keys in [IdempotencyKeyCheck::Off, IdempotencyKeyCheck::Warn] {
        let world = world.open_another(policy_with_key_check(keys)).await?;
        expect_key_stored(&world, with_wrong_key(1)).await?;
        let answer = world.append_event(with_wrong_key(2)).await?.result;
        expect_same(
            "event id and idempotent",
            (answer.event_id, answer.idempotent),
            (step_event("r", 1).event_id, true),
        )?;
    }
    Ok(())
}

async fn a_v1_key_is_rejected_by_default(world: &CheckContext<'_>) -> CheckResult {
    expect_key_refused(world, with_v1_key(1)).await
}

async fn a_v1_key_is_accepted_if_v1_keys_are_enabled(world: &CheckContext<'_>) -> CheckResult {
    expect_key_stored(&world.open_another(import_policy()).await?, with_v1_key(1)).await
}

async fn a_v1_key_detects_duplicates(world: &CheckContext<'_>) -> CheckResult {
    let world = world.open_another(import_policy()).await?;
    expect_key_stored(&world, with_v1_key(1)).await?;
    expect_same(
        "idempotent",
        world.append_event(with_v1_key(1)).await?.result.idempotent,
        true,
    )
}

async fn a_v2_key_is_accepted_if_v1_keys_are_enabled(world: &CheckContext<'_>) -> CheckResult {
    expect_key_stored(
        &world.open_another(import_policy()).await?,
        step_event("r", 1),
    )
    .await
}

async fn a_wrong_key_is_rejected_if_v1_keys_are_enabled(world: &CheckContext<'_>) -> CheckResult {
    expect_key_refused(
        &world.open_another(import_policy()).await?,
        with_wrong_key(1),
    )
    .await
}

async fn the_key_of_a_signal_event_is_checked_with_the_signal(
    world: &CheckContext<'_>,
) -> CheckResult {
    let paused = RunEventWrite {
        event_type: parse_id("RunPaused"),
        step_id: None,
        ..step_event("r", 1)
    };
    let signal = r#"{"signalType":"PAUSE","signalId":"s-1"}"#;
    let unsigned = RunEventWrite {
        idempotency_key: IdempotencyKey::for_event_v2(&paused),
        ..paused.clone()
    };
    expect_key_refused(
        world,
        RunEventWrite {
            payload: Some(fixtures::json_payload(signal)),
            ..unsigned
        },
    )
    .await?;
    expect_key_stored(world, fixtures::with_payload(paused, signal)).await
}

async fn a_key_of_another_run_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_key_refused(
        world,
        RunEventWrite {
            idempotency_key: step_event("s", 1).idempotency_key,
            ..step_event("r", 1)
        },
    )
    .await
}

/// Expects the store to reject the event for its shape, whatever key check the policy sets.
async fn expect_malformed(world: &CheckContext<'_>, event: RunEventWrite) -> CheckResult {
    let reason = expect_some("an error", event.check_shape().err())?.to_string();
    for keys in KEY_CHECKS {
        let world = world.open_another(policy_with_key_check(keys)).await?;
        let answer = world
            .append_events(vec![fixtures::step_event("r", 1), event.clone()])
            .await;
        expect_refused(
            answer,
            InvalidRequest::Event {
                index: 1,
                reason: reason.clone(),
            },
        )?;
        expect_same(
            "the runs",
            world.list_run_heads(None, None, 9).await?,
            Vec::new(),
        )?;
    }
    Ok(())
}

async fn a_step_event_without_a_step_is_rejected_under_every_policy(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_malformed(
        world,
        fixtures::with_computed_key(RunEventWrite {
            step_id: None,
            ..step_event("r", 2)
        }),
    )
    .await
}

async fn a_run_event_with_a_step_is_rejected_under_every_policy(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_malformed(
        world,
        fixtures::with_computed_key(RunEventWrite {
            event_type: parse_id("RunStarted"),
            ..step_event("r", 2)
        }),
    )
    .await
}

async fn a_payload_that_is_not_an_object_is_rejected_under_every_policy(
    world: &CheckContext<'_>,
) -> CheckResult {
    for payload in ["null", "[]", "1", "\"{}\""] {
        expect_malformed(
            world,
            RunEventWrite {
                payload: Some(fixtures::json_payload(payload)),
                ..step_event("r", 2)
            },
        )
        .await?;
    }
    Ok(())
}

async fn an_incomplete_signal_reference_is_rejected_under_every_policy(
    world: &CheckContext<'_>,
) -> CheckResult {
    for payload in [r#"{"signalType":"PAUSE"}"#, r#"{"signalId":"s-1"}"#] {
        expect_malformed(
            world,
            RunEventWrite {
                payload: Some(fixtures::json_payload(payload)),
                ..step_event("r", 2)
            },
        )
        .await?;
    }
    Ok(())
}
