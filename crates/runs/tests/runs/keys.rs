//! Idempotency keys: the golden vectors of `spec/runs.md`, which form an event takes, and how a
//! mismatch reads.

use std::collections::BTreeMap;
use std::fs;

use expect_test::expect;
use onward_base::Payload;
use onward_runs::{
    AcceptedKeyForms, IdempotencyKey, IdempotencyKeyForm, IdempotencyKeyParts, RunEventError,
    RunEventWrite, RunSignal, verify_idempotency_key,
};

use super::script::{attempt, event};

/// The event that a vector's text is made of.
fn event_of(form: &str, text: &str) -> RunEventWrite {
    let parts: Vec<&str> = text.split('|').collect();
    let mut event = event("x");
    event.run_id = parts[0].parse().unwrap();
    let mut rest = if form.starts_with("signal") {
        assert_eq!(parts[1], "SIGNAL");
        let payload = format!(
            r#"{{"signalType":"{}","signalId":"{}"}}"#,
            parts[2], parts[3]
        );
        event.payload = Some(Payload::parse(&payload).unwrap());
        parts[4..].iter()
    } else {
        event.step_id = if parts[1] == "RUN" {
            None
        } else {
            Some(parts[1].parse().unwrap())
        };
        parts[2..].iter()
    };
    let mut next = || *rest.next().unwrap();
    event.logical_attempt_id = attempt(next().parse().unwrap());
    if !form.starts_with("signal") {
        event.event_type = next().parse().unwrap();
    }
    if form != "v1" {
        event.plan_id = next().parse().unwrap();
    }
    event.plan_version = next().parse().unwrap();
    if form.contains("step") {
        event.step_id = Some(next().parse().unwrap());
    }
    if form.contains("decision") {
        event.event_type = next().parse().unwrap();
    }
    assert_eq!(rest.next(), None, "{text}");
    event
}

#[test]
fn the_key_vectors_of_the_page_match_the_code() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/runs.md")).unwrap();
    let (_, vectors) = page
        .split_once("<!-- vectors: read by the tests of crates/runs -->\n```text\n")
        .unwrap();
    let mut seen = BTreeMap::new();
    for line in vectors.lines().take_while(|line| *line != "```") {
        let (form, key_and_text) = line.split_once("  ").unwrap();
        let (key, text) = key_and_text.trim_start().split_once("  ").unwrap();
        let event = event_of(form, text);
        let signal = RunSignal::from_event(&event).unwrap();
        let parts = IdempotencyKeyParts::from_event(&event, signal.as_ref());
        let preimage = if form == "v1" {
            parts.preimage_v1()
        } else {
            parts.current_preimage()
        };
        assert_eq!(preimage.to_string(), text);
        assert_eq!(preimage.compute_key().to_string(), key, "{text}");
        let event = RunEventWrite {
            idempotency_key: key.parse().unwrap(),
            ..event
        };
        assert_eq!(
            verify_idempotency_key(&event, AcceptedKeyForms::V2OrV1)
                .map(|form| form.to_string())
                .unwrap(),
            form.split(',').next().unwrap()
        );
        *seen.entry(form).or_insert(0) += 1;
    }
    let forms: Vec<_> = seen.into_keys().collect();
    assert_eq!(
        forms,
        [
            "signal",
            "signal, decision",
            "signal, step",
            "signal, step, decision",
            "v1",
            "v2"
        ]
    );
}

#[test]
fn each_form_has_its_constructor() {
    let event = event("StepStarted load");
    let signal = RunSignal {
        signal_type: "RETRY_STEP".parse().unwrap(),
        signal_id: "s".parse().unwrap(),
    };
    assert_eq!(
        IdempotencyKey::for_event(&event),
        Ok(IdempotencyKey::for_event_v2(&event))
    );
    assert_eq!(
        IdempotencyKey::for_event_v2(&event),
        IdempotencyKeyParts::from_event(&event, None)
            .current_preimage()
            .compute_key()
    );
    assert_eq!(
        IdempotencyKey::for_event_v1(&event),
        IdempotencyKeyParts::from_event(&event, None)
            .preimage_v1()
            .compute_key()
    );
    assert_eq!(
        IdempotencyKey::for_signal_event(&event, &signal),
        IdempotencyKeyParts::from_event(&event, Some(&signal))
            .current_preimage()
            .compute_key()
    );
    assert_eq!(
        IdempotencyKeyParts::from_event(&event, Some(&signal))
            .current_preimage()
            .key_form(),
        IdempotencyKeyForm::Signal
    );
}

#[test]
fn a_platform_retry_has_the_same_key_and_a_business_retry_another() {
    assert_eq!(
        event("StepFailed load#1/1").idempotency_key,
        event("StepFailed load#1/2").idempotency_key
    );
    assert_ne!(
        event("StepFailed load#1/1").idempotency_key,
        event("StepFailed load#2/1").idempotency_key
    );
}

#[test]
fn two_signals_of_one_type_are_two_events() {
    let paused = |id: &str| {
        event(&format!(
            r#"RunPaused {{"signalType":"PAUSE","signalId":"{id}"}}"#
        ))
        .idempotency_key
    };
    assert_eq!(paused("one"), paused("one"));
    assert_ne!(paused("one"), paused("two"));
    assert_ne!(paused("one"), event("RunPaused").idempotency_key);
}

#[test]
fn a_decision_and_its_effect_are_two_events() {
    let signal = r#"{"signalType":"PAUSE","signalId":"s"}"#;
    let keys = [
        "RunPaused",
        "SignalAccepted",
        "SignalRejected",
        "SignalAccepted load",
        "StepSkipped load",
    ]
    .map(|head| event(&format!("{head} {signal}")).idempotency_key);
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{index}");
    }
}

/// Events whose parts are names chosen to be ambiguous.
fn ambiguous_events() -> Vec<RunEventWrite> {
    let names = ["RUN", "SIGNAL", "SignalAccepted", "1"];
    let mut events = Vec::new();
    for event_type in ["SIGNAL", "SignalAccepted", "SignalRejected", "1"] {
        for step in [None, Some("SIGNAL"), Some("1")] {
            for plan in names {
                for version in names {
                    let mut event = event("x");
                    event.event_type = event_type.parse().unwrap();
                    event.step_id = step.map(|step| step.parse().unwrap());
                    event.plan_id = plan.parse().unwrap();
                    event.plan_version = version.parse().unwrap();
                    events.push(event);
                }
            }
        }
    }
    events
}

#[test]
fn no_two_lists_of_parts_join_to_one_text() {
    let names = ["RUN", "SIGNAL", "SignalAccepted", "1"];
    let signals = names
        .into_iter()
        .flat_map(|first| names.map(|second| (first, second)));
    let signals: Vec<RunSignal> = signals
        .map(|(first, second)| RunSignal {
            signal_type: first.parse().unwrap(),
            signal_id: second.parse().unwrap(),
        })
        .collect();
    let events = ambiguous_events();
    let mut texts = BTreeMap::new();
    for event in &events {
        for signal in [None].into_iter().chain(signals.iter().map(Some)) {
            let parts = IdempotencyKeyParts::from_event(event, signal);
            let effect = signal.is_some() && !event.event_type.starts_with("Signal");
            let named = if effect {
                None
            } else {
                Some(&event.event_type)
            };
            let same = (signal, named, &event.step_id, &event.plan_version);
            let first = *texts
                .entry(parts.current_preimage().to_string())
                .or_insert((same, Some(&event.plan_id)));
            assert_eq!(
                first,
                (same, Some(&event.plan_id)),
                "{}",
                parts.current_preimage()
            );
            if signal.is_none() {
                assert_eq!(
                    *texts
                        .entry(parts.preimage_v1().to_string())
                        .or_insert((same, None)),
                    (same, None)
                );
            }
        }
    }
    assert!(texts.len() > 1_000);
}

fn with_payload(head: &str, payload: &str) -> RunEventWrite {
    RunEventWrite {
        payload: Some(Payload::parse(payload).unwrap()),
        ..event(head)
    }
}

#[test]
fn a_signal_is_named_by_two_strings() {
    for payload in [
        r#"{"signalType":"PAUSE","signalId":"s"}"#,
        r#"{"a":[{"signalId":1}],"signalId":"s","signalType":"PAUSE"}"#,
        r#"{"\u0073ignalType":"\u0050AUSE","signal\u0049d":"s"}"#,
    ] {
        let signal = RunSignal::from_event(&with_payload("RunPaused", payload))
            .unwrap()
            .unwrap();
        assert_eq!(
            (&*signal.signal_type, &*signal.signal_id),
            ("PAUSE", "s"),
            "{payload}"
        );
    }
    for payload in [
        "{}",
        r#"{"signalType":null}"#,
        r#"{"signalType":1,"signalId":2}"#,
        r#"{"signalTypes":"PAUSE","signalIds":"s"}"#,
        r#"{"cause":{"signalType":"PAUSE","signalId":"s"}}"#,
        r#"{"note":"signalType","signalid":"\\"}"#,
    ] {
        assert_eq!(
            RunSignal::from_event(&with_payload("RunPaused", payload)),
            Ok(None),
            "{payload}"
        );
    }
}

#[test]
fn a_signal_that_cannot_be_part_of_a_key_is_refused() {
    let mut text = String::new();
    for (head, payload) in [
        ("RunPaused", r#"{"signalType":"PAUSE"}"#),
        ("RunPaused", r#"{"signalId":"s"}"#),
        ("RunPaused", r#"{"signalType":"PAUSE","signalId":7}"#),
        ("RunPaused", r#"{"signalType":"PAUSE","signalId":null}"#),
        ("RunPaused", r#"{"signalType":"","signalId":"s"}"#),
        ("RunPaused", r#"{"signalType":"PAUSE","signalId":"a|b"}"#),
        (
            "RunPaused",
            r#"{"signalType":"PAUSE","signalId":"a\u0007"}"#,
        ),
        (
            "RunPaused",
            r#"{"signalType":"PAUSE","signalId":"s","signalId":"t"}"#,
        ),
        ("StepSkipped a", r#"{"signalType":"SKIP_STEP"}"#),
    ] {
        let error = with_payload(head, payload).check_shape().unwrap_err();
        text += &format!("{error}\n");
    }
    expect![[r#"
        field `payload.signalId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `payload.signalType` is missing: expected a string of 1 to 64 bytes without control characters or `|`
        field `payload.signalId` is 7: expected a string of 1 to 255 bytes without control characters or `|`
        field `payload.signalId` is null: expected a string of 1 to 255 bytes without control characters or `|`
        field `payload.signalType` is "": expected a string of 1 to 64 bytes without control characters or `|`
        field `payload.signalId` is "a|b": expected a string of 1 to 255 bytes without control characters or `|`
        field `payload.signalId` is "a\u{7}": expected a string of 1 to 255 bytes without control characters or `|`
        duplicate field "payload.signalId": expected each field once
        field `payload.signalId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_decision_names_its_signal() {
    let accepted = event(r#"SignalAccepted {"signalType":"PAUSE","signalId":"s"}"#);
    for payload in [
        None,
        Some("{}"),
        Some(r#"{"signalType":"PAUSE"}"#),
        Some(r#"{"signalType":1,"signalId":2}"#),
    ] {
        let payload = payload.map(|payload| Payload::parse(payload).unwrap());
        let bare = RunEventWrite {
            payload,
            ..accepted.clone()
        };
        assert!(matches!(
            bare.check_shape(),
            Err(RunEventError::Missing { .. } | RunEventError::Mismatch { .. })
        ));
        assert!(IdempotencyKey::for_event(&bare).is_err());
        assert!(RunEventWrite::from_json(&bare.to_json()).is_err());
    }
    assert_eq!(accepted.check_shape(), Ok(()));
}

#[test]
fn a_key_of_version_1_is_accepted_only_for_imports() {
    for head in [
        "StepStarted load",
        "RunStarted",
        r#"RunPaused {"signalType":"PAUSE","signalId":"s"}"#,
    ] {
        let event = event(head);
        let old = RunEventWrite {
            idempotency_key: IdempotencyKey::for_event_v1(&event),
            ..event.clone()
        };
        assert!(verify_idempotency_key(&old, AcceptedKeyForms::V2Only).is_err());
        assert_eq!(
            verify_idempotency_key(&old, AcceptedKeyForms::V2OrV1),
            Ok(IdempotencyKeyForm::V1)
        );
        assert_eq!(
            verify_idempotency_key(&event, AcceptedKeyForms::V2Only),
            verify_idempotency_key(&event, AcceptedKeyForms::V2OrV1)
        );
    }
}

#[test]
fn a_mismatch_names_the_expected_key_and_its_preimage() {
    let event = RunEventWrite {
        idempotency_key: IdempotencyKey::from_bytes([7; 32]),
        ..event("StepStarted load")
    };
    let mismatch = verify_idempotency_key(&event, AcceptedKeyForms::V2OrV1).unwrap_err();
    assert_eq!(mismatch.expected, IdempotencyKey::for_event_v2(&event));
    assert_eq!(mismatch.found, event.idempotency_key);
    assert_eq!(mismatch.preimage, "run-1|load|1|StepStarted|plan-1|7");
    expect![[r#"field `idempotencyKey` is 0707070707070707070707070707070707070707070707070707070707070707: expected 2545abcef4a708506ef41d6914eb4b4c26fb9e66b1202ea1087691f6d8aeab07, the SHA-256 of "run-1|load|1|StepStarted|plan-1|7""#]].assert_eq(&mismatch.to_string());
}
