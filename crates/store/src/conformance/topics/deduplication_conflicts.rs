//! Checks of duplicates with different content: the store keeps the first event and reports the
//! conflict.

use super::prelude::*;
use crate::conformance::fixtures::with_payload;

super::checks!(Idempotency:
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
);

async fn a_repeat_within_a_batch_that_differs_is_reported(world: &CheckContext<'_>) -> CheckResult {
    let batch = vec![
        with_payload(step_event("r", 1), "{\"a\":1}"),
        with_payload(step_event("r", 1), "{\"a\":2}"),
    ];
    let answers = world.append_events(batch.clone()).await?;
    expect_same(
        "which differ",
        answers.iter().map(|answer| answer.differs).collect(),
        vec![false, true],
    )?;
    expect_same(
        "what is kept",
        world.read_log("r").await?[0].event.clone(),
        batch[0].clone(),
    )
}

/// Appends an event with one payload and again with another, and expects the store to keep the
/// first.
async fn append_contradiction(
    world: &CheckContext<'_>,
    first: Option<&str>,
    second: Option<&str>,
    expected: bool,
) -> CheckResult {
    let with = |text: Option<&str>| RunEventWrite {
        payload: text.map(fixtures::json_payload),
        ..step_event("r", 1)
    };
    world.append_event(with(first)).await?;
    let answer = world.append_event(with(second)).await?;
    expect_same(
        "whether it is a repeat",
        (answer.result.idempotent, answer.result.persisted),
        (true, false),
    )?;
    expect_same("whether it differs", answer.differs, expected)?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("what is kept", kept, vec![with(first)])
}

async fn a_repeat_with_another_payload_keeps_the_first_and_is_reported(
    world: &CheckContext<'_>,
) -> CheckResult {
    append_contradiction(world, Some("{\"a\":1}"), Some("{\"a\":2}"), true).await
}

async fn a_repeat_with_a_payload_for_none_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_contradiction(world, None, Some("{}"), true).await
}

async fn a_repeat_without_the_payload_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_contradiction(world, Some("{}"), None, true).await
}

/// Without the key check, an event can reuse the idempotency key of an event with different
/// content.
async fn append_key_contradiction(world: &CheckContext<'_>, second: RunEventWrite) -> CheckResult {
    let world = world
        .open_another(StorePolicy {
            key_check: crate::IdempotencyKeyCheck::Off,
            ..StorePolicy::default()
        })
        .await?;
    world.append_event(step_event("r", 1)).await?;
    let answer = world.append_event(second).await?;
    expect_same(
        "repeat, differs",
        (answer.result.idempotent, answer.differs),
        (true, true),
    )?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("what is kept", kept, vec![step_event("r", 1)])
}

async fn a_repeat_of_another_type_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_key_contradiction(
        world,
        RunEventWrite {
            event_type: parse_id("StepFailed"),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn a_repeat_about_another_step_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_key_contradiction(
        world,
        RunEventWrite {
            step_id: Some(parse_id("another")),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn every_differing_repeat_is_reported(world: &CheckContext<'_>) -> CheckResult {
    world
        .append_event(with_payload(step_event("r", 1), "{\"a\":1}"))
        .await?;
    for payload in [
        "{\"a\":2}",
        "{\"a\":2}",
        "{\"a\":\"1\"}",
        "{\"a\":null}",
        "{\"A\":1}",
        "{\"a\":1,\"b\":0}",
    ] {
        let answer = world
            .append_event(with_payload(step_event("r", 1), payload))
            .await?;
        expect_same(payload, answer.differs, true)?;
    }
    expect_same(
        "the first again",
        world
            .append_event(with_payload(step_event("r", 1), "{\"a\":1}"))
            .await?
            .differs,
        false,
    )
}

async fn members_in_another_order_do_not_differ(world: &CheckContext<'_>) -> CheckResult {
    let (one, other) = (
        r#"{"a":1,"b":{"c":[1,{"d":2,"e":3}],"f":4}}"#,
        r#"{"b":{"f":4,"c":[1,{"e":3,"d":2}]},"a":1}"#,
    );
    append_contradiction(world, Some(one), Some(other), false).await
}

async fn white_space_does_not_differ(world: &CheckContext<'_>) -> CheckResult {
    append_contradiction(
        world,
        Some("{\"a\":[1,2]}"),
        Some(" {\n\"a\" : [ 1,\t2 ] } "),
        false,
    )
    .await
}

async fn elements_in_another_order_differ(world: &CheckContext<'_>) -> CheckResult {
    append_contradiction(world, Some("{\"a\":[1,2]}"), Some("{\"a\":[2,1]}"), true).await
}

async fn numbers_that_differ_in_their_last_digit_differ(world: &CheckContext<'_>) -> CheckResult {
    let (one, other) = (
        r#"{"a":123456789012345678901234567890}"#,
        r#"{"a":123456789012345678901234567891}"#,
    );
    append_contradiction(world, Some(one), Some(other), true).await
}

async fn huge_numbers_in_another_order_do_not_differ(world: &CheckContext<'_>) -> CheckResult {
    append_contradiction(
        world,
        Some(r#"{"a":1e400,"b":2}"#),
        Some(r#"{"b":2,"a":1e400}"#),
        false,
    )
    .await
}
