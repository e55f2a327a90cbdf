//! Checks of duplicates with different content: the store keeps the first event and reports the
//! conflict.

use super::prelude::*;
use crate::conformance::fixtures::with_payload;

super::checks!(Idempotency:
    a_differing_duplicate_within_a_batch_is_reported,
    a_duplicate_with_another_payload_keeps_the_first_and_is_reported,
    a_duplicate_that_adds_a_payload_is_reported,
    a_duplicate_that_omits_the_payload_is_reported,
    a_duplicate_of_another_type_is_reported,
    a_duplicate_with_another_step_is_reported,
    every_differing_duplicate_is_reported,
    payloads_with_reordered_members_are_equal,
    payloads_that_differ_in_white_space_are_equal,
    payloads_with_reordered_elements_differ,
    payloads_whose_numbers_differ_in_the_last_digit_differ,
    payloads_with_reordered_huge_numbers_are_equal,
);

async fn a_differing_duplicate_within_a_batch_is_reported(world: &CheckContext<'_>) -> CheckResult {
    let batch = vec![
        with_payload(step_event("r", 1), "{\"a\":1}"),
        with_payload(step_event("r", 1), "{\"a\":2}"),
    ];
    let answers = world.append_events(batch.clone()).await?;
    expect_same(
        "the payloads that differ",
        answers.iter().map(|answer| answer.differs).collect(),
        vec![false, true],
    )?;
    expect_same(
        "the stored events",
        world.read_log("r").await?[0].event.clone(),
        batch[0].clone(),
    )
}

/// How the payload of a duplicate compares with that of the stored event.
#[derive(Debug, PartialEq, Eq)]
enum PayloadComparison {
    Equal,
    Different,
}

/// Appends an event with one payload and again with another, and expects the store to keep the
/// first and to compare the two correctly.
async fn append_duplicate(
    world: &CheckContext<'_>,
    first: Option<&str>,
    second: Option<&str>,
    expected: PayloadComparison,
) -> CheckResult {
    let with = |text: Option<&str>| RunEventWrite {
        payload: text.map(fixtures::json_payload),
        ..step_event("r", 1)
    };
    world.append_event(with(first)).await?;
    let answer = world.append_event(with(second)).await?;
    expect_same(
        "whether it is a duplicate",
        (answer.result.idempotent, answer.result.persisted),
        (true, false),
    )?;
    let found = if answer.differs {
        PayloadComparison::Different
    } else {
        PayloadComparison::Equal
    };
    expect_same("comparison of the payloads", found, expected)?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the stored events", kept, vec![with(first)])
}

async fn a_duplicate_with_another_payload_keeps_the_first_and_is_reported(
    world: &CheckContext<'_>,
) -> CheckResult {
    append_duplicate(
        world,
        Some("{\"a\":1}"),
        Some("{\"a\":2}"),
        PayloadComparison::Different,
    )
    .await
}

async fn a_duplicate_that_adds_a_payload_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_duplicate(world, None, Some("{}"), PayloadComparison::Different).await
}

async fn a_duplicate_that_omits_the_payload_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_duplicate(world, Some("{}"), None, PayloadComparison::Different).await
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
        "idempotent, differs",
        (answer.result.idempotent, answer.differs),
        (true, true),
    )?;
    let kept: Vec<_> = world
        .read_log("r")
        .await?
        .into_iter()
        .map(|record| record.event)
        .collect();
    expect_same("the stored events", kept, vec![step_event("r", 1)])
}

async fn a_duplicate_of_another_type_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_key_contradiction(
        world,
        RunEventWrite {
            event_type: parse_id("StepFailed"),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn a_duplicate_with_another_step_is_reported(world: &CheckContext<'_>) -> CheckResult {
    append_key_contradiction(
        world,
        RunEventWrite {
            step_id: Some(parse_id("another")),
            ..step_event("r", 1)
        },
    )
    .await
}

async fn every_differing_duplicate_is_reported(world: &CheckContext<'_>) -> CheckResult {
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
        "the repeated result",
        world
            .append_event(with_payload(step_event("r", 1), "{\"a\":1}"))
            .await?
            .differs,
        false,
    )
}

async fn payloads_with_reordered_members_are_equal(world: &CheckContext<'_>) -> CheckResult {
    let (one, other) = (
        r#"{"a":1,"b":{"c":[1,{"d":2,"e":3}],"f":4}}"#,
        r#"{"b":{"f":4,"c":[1,{"e":3,"d":2}]},"a":1}"#,
    );
    append_duplicate(world, Some(one), Some(other), PayloadComparison::Equal).await
}

async fn payloads_that_differ_in_white_space_are_equal(world: &CheckContext<'_>) -> CheckResult {
    append_duplicate(
        world,
        Some("{\"a\":[1,2]}"),
        Some(" {\n\"a\" : [ 1,\t2 ] } "),
        PayloadComparison::Equal,
    )
    .await
}

async fn payloads_with_reordered_elements_differ(world: &CheckContext<'_>) -> CheckResult {
    append_duplicate(
        world,
        Some("{\"a\":[1,2]}"),
        Some("{\"a\":[2,1]}"),
        PayloadComparison::Different,
    )
    .await
}

async fn payloads_whose_numbers_differ_in_the_last_digit_differ(
    world: &CheckContext<'_>,
) -> CheckResult {
    let (one, other) = (
        r#"{"a":123456789012345678901234567890}"#,
        r#"{"a":123456789012345678901234567891}"#,
    );
    append_duplicate(world, Some(one), Some(other), PayloadComparison::Different).await
}

async fn payloads_with_reordered_huge_numbers_are_equal(world: &CheckContext<'_>) -> CheckResult {
    append_duplicate(
        world,
        Some(r#"{"a":1e400,"b":2}"#),
        Some(r#"{"b":2,"a":1e400}"#),
        PayloadComparison::Equal,
    )
    .await
}
