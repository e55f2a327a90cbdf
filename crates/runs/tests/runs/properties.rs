//! Properties of every log: generated logs, legal or not, complete or not.

use onward_base::Payload;
use onward_runs::{
    AcceptedKeyForms, ExtraFields, IdempotencyKey, RunEventRecord, RunEventWrite, RunSeq,
    RunSnapshot, StepId, check_transition, project_from_snapshot, project_run, reduce_event,
    verify_idempotency_key,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::script::{attempt, event, log, record, run_id, seq};

/// Types that mean something, often, and others.
fn event_type() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "RunQueued",
        "RunApproved",
        "RunStarted",
        "RunStarted",
        "RunStarted",
        "RunPaused",
        "RunResumed",
        "RunCancelRequested",
        "RunCancelled",
        "RunFailed",
        "RunCompleted",
        "StepStarted",
        "StepStarted",
        "StepStarted",
        "StepCompleted",
        "StepFailed",
        "StepFailed",
        "StepSkipped",
        "RunContinued",
        "Else",
    ])
}

fn payload() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("{}"),
        Some(r#"{"substatus":"WAITING_APPROVAL"}"#),
        Some(r#"{"substatus":"CONTINUE_AS_NEW","engineRunRef":[1e400]}"#),
        Some(r#"{"substatus":"DRAINING","engineRunRef":null}"#),
        Some(r#"{"artifacts":[{"uri":"u","kind":"k"},{"uri":1}]}"#),
        Some(
            r#"{"artifactRefs":[{"uri":"v","kind":"k","sizeBytes":18446744073709551615}],"reason":"r"}"#,
        ),
        Some(r#"{"error":{"category":"c","message":"m","retryable":true},"reason":{}}"#),
        Some(r#"{"error":[],"artifacts":"none","substatus":[]}"#),
    ])
}

prop_compose! {
    /// A complete event, which may or may not be legal at its position.
    fn any_event()(
        event_type in event_type(),
        step in 0..3,
        logical in 1..4_u32,
        engine in 1..3_u32,
        payload in payload(),
    ) -> RunEventWrite {
        let names_step = event_type.starts_with("Step");
        let mut event = RunEventWrite {
            event_type: event_type.parse().unwrap(),
            step_id: names_step.then(|| format!("step-{step}").parse().unwrap()),
            logical_attempt_id: attempt(if names_step { logical } else { 1 }),
            engine_attempt_id: attempt(engine),
            payload: payload.map(|payload| Payload::parse(payload).unwrap()),
            ..event("x")
        };
        event.idempotency_key = IdempotencyKey::for_event(&event).unwrap();
        event
    }
}

/// A log, sometimes with holes.
fn any_log() -> impl Strategy<Value = Vec<RunEventRecord>> {
    vec((any_event(), prop::bool::weighted(0.05)), 0..40).prop_map(|events| {
        let mut number = 0;
        let mut place = |hole| {
            number += if hole { 2 } else { 1 };
            number
        };
        let mut log = log(&["RunStarted"]);
        log.truncate(usize::from(events.len() % 4 > 0));
        let first = log.len() as u64;
        log.extend(
            events
                .into_iter()
                .map(|(event, hole)| record(first + place(hole), event)),
        );
        log
    })
}

fn round_trip(snapshot: &RunSnapshot) -> RunSnapshot {
    serde_json::from_str(&serde_json::to_string(snapshot).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn reducing_again_changes_nothing(log in any_log()) {
        let snapshot = project_run(run_id(), &log);
        prop_assert_eq!(&project_from_snapshot(snapshot.clone(), &log), &snapshot);
        let doubled: Vec<_> = log.iter().flat_map(|event| [event, event]).collect();
        prop_assert_eq!(&project_run(run_id(), doubled), &snapshot);
    }

    #[test]
    fn any_split_gives_the_whole(log in any_log(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(log.len() + 1);
        let whole = project_run(run_id(), &log);
        let first = project_run(run_id(), &log[..cut]);
        prop_assert_eq!(&project_from_snapshot(first.clone(), &log[cut..]), &whole);
        prop_assert_eq!(&project_from_snapshot(first, &log), &whole);
    }

    #[test]
    fn reduction_continues_from_a_stored_snapshot(log in any_log(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(log.len() + 1);
        let first = project_run(run_id(), &log[..cut]);
        let read = round_trip(&first);
        prop_assert_eq!(&read, &first);
        let gone_on = project_from_snapshot(read, &log[cut..]);
        prop_assert_eq!(&gone_on, &project_run(run_id(), &log));
        prop_assert_eq!(&round_trip(&gone_on), &gone_on);
    }

    #[test]
    fn legal_events_add_no_inconsistency(log in any_log(), event in any_event()) {
        let before = project_run(run_id(), &log);
        let count = |snapshot: &RunSnapshot| snapshot.inconsistencies.as_ref().map_or(0, |it| it.count);
        let after = reduce_event(before.clone(), &record(before.last_event_seq.as_u64() + 1, event.clone()));
        match check_transition(&before, &event) {
            Ok(()) => prop_assert_eq!(count(&after), count(&before)),
            Err(refused) => {
                prop_assert_eq!(count(&after), count(&before) + 1);
                if before.inconsistencies.is_none() {
                    prop_assert_eq!(&*after.inconsistencies.clone().unwrap().first.message, &refused.to_string());
                }
                let untouched = RunSnapshot {
                    last_event_seq: after.last_event_seq,
                    inconsistencies: after.inconsistencies.clone(),
                    ..before
                };
                prop_assert_eq!(after, untouched);
            }
        }
    }

    #[test]
    fn the_watermark_only_rises(log in any_log(), cut in any::<prop::sample::Index>()) {
        let (last, first) = log.split_at(cut.index(log.len() + 1));
        let mut snapshot = RunSnapshot::new(run_id());
        for event in first.iter().chain(last) {
            let before = snapshot.last_event_seq;
            snapshot = reduce_event(snapshot, event);
            prop_assert_eq!(snapshot.last_event_seq, before.max(event.run_seq));
        }
    }

    #[test]
    fn an_event_survives_json(event in any_event(), number in 1..=i64::MAX as u64, extra in "[a-z\"\\\\é\u{0}]{1,6}") {
        let unknown = format!("{{{}:[1.0,{}]}}", serde_json::to_string(&format!("x-{extra}")).unwrap(), "9".repeat(40));
        let event = RunEventWrite { extra: ExtraFields::parse(&unknown).unwrap(), ..event };
        prop_assert_eq!(RunEventWrite::from_json(&event.to_json()), Ok(event.clone()));
        let record = RunEventRecord { run_seq: seq(number), ..record(1, event) };
        prop_assert_eq!(RunEventRecord::from_json(&record.to_json()), Ok(record));
    }

    #[test]
    fn an_event_carries_the_key_of_its_parts(event in any_event()) {
        prop_assert!(verify_idempotency_key(&event, AcceptedKeyForms::V2Only).is_ok());
        let other = RunEventWrite { plan_version: "other".parse().unwrap(), ..event };
        prop_assert!(verify_idempotency_key(&other, AcceptedKeyForms::V2OrV1).is_err());
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>(), at in any::<prop::sample::Index>()) {
        let _ = RunEventWrite::from_json(&text);
        let _ = ExtraFields::parse(&text);
        let _ = text.parse::<StepId>();
        let mut damaged = record(1, event(r#"StepFailed a {"error":{"code":"x"}}"#)).to_json();
        let at = at.index(damaged.len());
        damaged.replace_range(at..=at, &text);
        if let Ok(read) = RunEventRecord::from_json(&damaged) {
            let _ = reduce_event(RunSnapshot::new(read.event.run_id.clone()), &read);
            prop_assert_eq!(RunEventRecord::from_json(&read.to_json()), Ok(read));
        }
    }

    #[test]
    fn any_payload_is_reduced(members in vec(("[a-zA-Z]{0,3}|error|artifacts|reason|substatus", any::<i32>()), 0..5)) {
        let object: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let payload = Payload::parse(&format!("{{{}}}", object.join(","))).unwrap();
        let events = ["RunStarted", "StepFailed a", "RunFailed"].map(event);
        let events = (1..).zip(events).map(|(number, event)| record(number, RunEventWrite { payload: Some(payload.clone()), ..event }));
        let snapshot = project_run(run_id(), &events.collect::<Vec<_>>());
        prop_assert_eq!(snapshot.inconsistencies, None);
        prop_assert_eq!(snapshot.last_event_seq, RunSeq::new(3).unwrap());
    }
}
