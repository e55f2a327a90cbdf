//! The contract in JSON: what is required, what is kept unchanged, and how errors read.

use expect_test::expect;
use onward_base::Timestamp;
use onward_runs::{
    AppendResult, ExtraFields, RunEventError, RunEventRecord, RunEventWrite, RunSeq,
};
use serde_json::{Map, Value, json};

use super::script::{event, log, record, seq};

/// Every field that a producer may set, in the order of the contract.
const FULL: &str = concat!(
    r#"{"eventId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","eventType":"StepCompleted","#,
    r#""emittedAt":"2026-03-01T12:00:00.1230+00:00","runId":"run-1","tenantId":"acme","projectId":"shop","#,
    r#""environmentId":"prod","planId":"plan-1","planVersion":"7","engineAttemptId":3,"logicalAttemptId":2,"#,
    r#""idempotencyKey":"7f4b974658a54fb2aee9ecb9cefebd2eec27f3fd01f0f8c0d031dfc4a5b96e3c","stepId":"load","#,
    r#""payload":{"rows":123456789012345678901234567890,"ratio":1.0,"huge":1e400},"#,
    r#""adapterVersion":"1.4","parent":{"z":1.50,"a":[-0,1E+2]}}"#
);

pub(crate) fn members() -> Map<String, Value> {
    let text = FULL.replace("1e400", "1");
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn with(name: &str, value: Value) -> String {
    let mut members = members();
    members.insert(name.to_owned(), value);
    Value::Object(members).to_string()
}

fn without(name: &str) -> String {
    let mut members = members();
    assert!(members.remove(name).is_some());
    Value::Object(members).to_string()
}

pub(crate) fn read_error_of(text: &str) -> String {
    RunEventWrite::from_json(text).unwrap_err().to_string()
}

#[test]
fn an_event_is_written_back_digit_by_digit() {
    let event = RunEventWrite::from_json(FULL).unwrap();
    assert_eq!(event.to_json(), FULL);
    assert_eq!(serde_json::to_string(&event).unwrap(), FULL);
    assert_eq!(
        event.extra.as_json(),
        Some(r#"{"adapterVersion":"1.4","parent":{"z":1.50,"a":[-0,1E+2]}}"#)
    );
}

#[test]
fn an_event_is_read_from_text_bytes_and_readers_alike() {
    let event = RunEventWrite::from_json(FULL).unwrap();
    assert_eq!(serde_json::from_str::<RunEventWrite>(FULL).unwrap(), event);
    assert_eq!(
        serde_json::from_slice::<RunEventWrite>(FULL.as_bytes()).unwrap(),
        event
    );
    assert_eq!(
        serde_json::from_reader::<_, RunEventWrite>(FULL.as_bytes()).unwrap(),
        event
    );
    let listed: Vec<RunEventWrite> = serde_json::from_str(&format!("[{FULL}, {FULL}]")).unwrap();
    assert_eq!(listed, [event.clone(), event]);
}

#[test]
fn a_record_is_flat() {
    let mut expected = FULL.replace(
        r#","adapterVersion""#,
        r#","runSeq":9,"persistedAt":"2026-03-01T12:00:01Z","adapterVersion""#,
    );
    let read = RunEventRecord::from_json(&expected).unwrap();
    assert_eq!(read.event, RunEventWrite::from_json(FULL).unwrap());
    assert_eq!(read.run_seq, seq(9));
    assert_eq!(read.persisted_at, "2026-03-01T12:00:01Z".parse().unwrap());
    assert_eq!(read.to_json(), expected);
    assert_eq!(
        serde_json::from_str::<RunEventRecord>(&expected).unwrap(),
        read
    );
    expected = expected.replace("12:00:01Z", "12:00:01.000+00:00");
    assert_eq!(RunEventRecord::from_json(&expected).unwrap(), read);
}

#[test]
fn optional_fields_may_be_null_or_absent_and_are_then_not_written() {
    let bare = event("RunStarted");
    let text = bare.to_json();
    assert!(
        !text.contains("stepId") && !text.contains("payload"),
        "{text}"
    );
    assert_eq!(RunEventWrite::from_json(&text), Ok(bare.clone()));
    let nulls = text.replace("{", r#"{"stepId":null,"payload":null,"#);
    assert_eq!(RunEventWrite::from_json(&nulls), Ok(bare));
}

#[test]
fn an_unknown_null_is_kept() {
    let text = event("RunStarted")
        .to_json()
        .replace('}', r#","later":null}"#);
    assert_eq!(RunEventWrite::from_json(&text).unwrap().to_json(), text);
}

#[test]
fn white_space_and_order_do_not_matter() {
    let spaced = format!(
        " \n{}\t",
        FULL.replace("\":", "\" :\n ").replace(",\"", " , \"")
    );
    assert_eq!(
        RunEventWrite::from_json(&spaced),
        RunEventWrite::from_json(FULL)
    );
    let sorted = serde_json::to_string(&members()).unwrap();
    let sorted = RunEventWrite::from_json(&sorted).unwrap();
    assert_eq!(
        sorted.event_id,
        RunEventWrite::from_json(FULL).unwrap().event_id
    );
}

#[test]
fn a_missing_field_is_named() {
    let mut text = String::new();
    for name in members()
        .keys()
        .filter(|name| !matches!(name.as_str(), "payload" | "adapterVersion" | "parent"))
    {
        text += &format!("{}\n", read_error_of(&without(name)));
    }
    expect![[r#"
        field `emittedAt` is missing: expected an RFC 3339 instant in UTC, such as "2026-03-01T12:00:00Z"
        field `engineAttemptId` is missing: expected an integer from 1 to 2147483647
        field `environmentId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `eventId` is missing: expected a UUID of version 4, such as "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"
        field `eventType` is missing: expected a string of 1 to 64 bytes without control characters or `|`
        field `idempotencyKey` is missing: expected 64 lowercase hex digits
        field `logicalAttemptId` is missing: expected an integer from 1 to 2147483647
        field `planId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `planVersion` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `projectId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `runId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
        field `stepId` is missing: StepCompleted is about a step
        field `tenantId` is missing: expected a string of 1 to 255 bytes without control characters or `|`
    "#]]
    .assert_eq(&text);
    assert!(RunEventWrite::from_json(&without("payload")).is_ok());
}

#[test]
fn a_field_of_the_wrong_type_is_named_and_shown() {
    let mut text = String::new();
    for (name, right) in members() {
        if matches!(name.as_str(), "adapterVersion" | "parent") {
            continue;
        }
        for wrong in [
            json!(null),
            json!(true),
            json!(0),
            json!(1.5),
            json!(""),
            json!("a|b"),
            json!([1]),
            json!({}),
        ] {
            let same_type = match (&right, &wrong) {
                (Value::Object(_), Value::Object(_)) => true,
                (_, Value::Null) => matches!(name.as_str(), "stepId" | "payload"),
                _ => false,
            };
            if !same_type {
                let error = read_error_of(&with(&name, wrong.clone()));
                assert!(error.starts_with(&format!("field `{name}` is ")), "{error}");
                assert!(error.contains(": expected "), "{error}");
            }
        }
        text += &format!("{}\n", read_error_of(&with(&name, json!([1]))));
    }
    expect![[r#"
        field `emittedAt` is a list: expected an RFC 3339 instant in UTC, such as "2026-03-01T12:00:00Z"
        field `engineAttemptId` is a list: expected an integer from 1 to 2147483647
        field `environmentId` is a list: expected a string of 1 to 255 bytes without control characters or `|`
        field `eventId` is a list: expected a UUID of version 4, such as "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"
        field `eventType` is a list: expected a string of 1 to 64 bytes without control characters or `|`
        field `idempotencyKey` is a list: expected 64 lowercase hex digits
        field `logicalAttemptId` is a list: expected an integer from 1 to 2147483647
        field `payload` is a list: expected an object, nested at most 128 deep
        field `planId` is a list: expected a string of 1 to 255 bytes without control characters or `|`
        field `planVersion` is a list: expected a string of 1 to 255 bytes without control characters or `|`
        field `projectId` is a list: expected a string of 1 to 255 bytes without control characters or `|`
        field `runId` is a list: expected a string of 1 to 255 bytes without control characters or `|`
        field `stepId` is a list: expected a string of 1 to 255 bytes without control characters or `|`, and not RUN, SignalAccepted or SignalRejected
        field `tenantId` is a list: expected a string of 1 to 255 bytes without control characters or `|`
    "#]].assert_eq(&text);
}

#[test]
fn a_duplicate_field_is_named() {
    for name in members().keys() {
        let twice = FULL.replacen('{', &format!("{{\"{name}\":{},", members()[name]), 1);
        assert_eq!(
            RunEventWrite::from_json(&twice),
            Err(RunEventError::Repeated(format!("\"{name}\""))),
            "an ambiguous event is no event"
        );
    }
    let hidden = FULL.replacen('{', r#"{"\u0072unId":"run-2","#, 1);
    assert_eq!(
        read_error_of(&hidden),
        r#"duplicate field "runId": expected each field once"#
    );
}

#[test]
fn fields_that_the_store_assigns_are_refused() {
    for name in ["runSeq", "persistedAt"] {
        for value in [json!(1), json!("2026-03-01T12:00:00Z"), json!(null)] {
            let expected =
                format!("field `{name}` is assigned by the store: producers never supply it");
            assert_eq!(read_error_of(&with(name, value)), expected);
        }
    }
}

#[test]
fn a_record_requires_a_sequence_and_a_timestamp() {
    let error_of = |name: &str, value: Value| {
        let mut members: Map<String, Value> =
            serde_json::from_str(&log(&["RunStarted"])[0].to_json()).unwrap();
        members.insert(name.to_owned(), value);
        RunEventRecord::from_json(&Value::Object(members).to_string())
            .unwrap_err()
            .to_string()
    };
    for value in [
        json!(null),
        json!(0),
        json!(-1),
        json!(1.0),
        json!("1"),
        json!(u64::MAX),
    ] {
        let expected =
            format!("field `runSeq` is {value}: expected an integer from 1 to 9223372036854775807");
        assert_eq!(error_of("runSeq", value), expected);
    }
    for value in [json!(null), json!("2026-03-01T12:00:00+01:00")] {
        let expected = format!(
            "field `persistedAt` is {value}: expected an RFC 3339 instant in UTC, such as \"2026-03-01T12:00:00Z\""
        );
        assert_eq!(error_of("persistedAt", value), expected);
    }
    let bare = RunEventRecord::from_json(FULL).unwrap_err().to_string();
    assert_eq!(
        bare,
        "field `runSeq` is missing: expected an integer from 1 to 9223372036854775807"
    );
}

#[test]
fn a_step_is_named_where_the_type_needs_one_and_nowhere_else() {
    let shape = |event_type: &str, step: Value| {
        let mut members = members();
        members.insert("eventType".to_owned(), json!(event_type));
        members.insert("stepId".to_owned(), step);
        RunEventWrite::from_json(&Value::Object(members).to_string())
            .map_err(|error| error.to_string())
    };
    for event_type in ["StepStarted", "StepCorrected", "Step"] {
        assert!(shape(event_type, json!("a")).is_ok());
        let missing = format!("field `stepId` is missing: {event_type} is about a step");
        assert_eq!(shape(event_type, json!(null)), Err(missing));
    }
    for event_type in ["RunStarted", "RunContinued", "Run"] {
        assert!(shape(event_type, json!(null)).is_ok());
        let unexpected =
            format!("field `stepId` is present, but {event_type} is about the whole run");
        assert_eq!(shape(event_type, json!("a")), Err(unexpected));
    }
    for event_type in ["PlanPublished", "stepStarted", "x"] {
        assert!(shape(event_type, json!("a")).is_ok() && shape(event_type, json!(null)).is_ok());
    }
}

#[test]
fn a_payload_made_in_memory_is_an_object_too() {
    let mut event = event("RunStarted");
    for text in ["null", "[1]", "1", "\"{\""] {
        event.payload = Some(onward_base::Payload::parse(text).unwrap());
        assert!(
            matches!(event.check_shape(), Err(RunEventError::PayloadNotObject(_))),
            "{text}"
        );
    }
    event.payload = Some(onward_base::Payload::parse("{}").unwrap());
    assert_eq!(event.check_shape(), Ok(()));
}

#[test]
fn unknown_fields_can_be_kept_in_a_column_of_their_own() {
    let event = RunEventWrite::from_json(FULL).unwrap();
    let kept = event.extra.as_json().unwrap();
    let again = RunEventWrite {
        extra: ExtraFields::parse(kept).unwrap(),
        ..event.clone()
    };
    assert_eq!(again, event);
}

#[test]
fn an_append_result_has_the_sequence_of_the_event() {
    let result = AppendResult {
        event_id: event("RunStarted").event_id,
        run_seq: seq(10),
        persisted_at: Timestamp::EPOCH,
        idempotent: true,
        persisted: false,
    };
    expect![[r#"{"eventId":"00000000-0000-4000-8000-000000000000","runSeq":10,"persistedAt":"1970-01-01T00:00:00Z","idempotent":true,"persisted":false}"#]].assert_eq(&result.to_json());
    assert_eq!(AppendResult::from_json(&result.to_json()), Ok(result));
    assert_eq!(
        serde_json::from_str::<AppendResult>(&result.to_json()).unwrap(),
        result
    );
    let error_of = |from: &str, to: &str| {
        AppendResult::from_json(&result.to_json().replace(from, to))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error_of("true", "1"),
        "field `idempotent` is 1: expected true or false"
    );
    assert_eq!(
        error_of("persisted\"", "x\""),
        "field `persisted` is missing: expected true or false"
    );
    assert_eq!(
        error_of("}", ",\"runSeq\":1}"),
        "duplicate field \"runSeq\": expected each field once"
    );
}

#[test]
fn a_record_survives_a_round_trip() {
    for record in log(&[
        "RunStarted",
        r#"StepFailed load#2/3 {"error":{"code":"X"}}"#,
        "Anything {}",
    ]) {
        assert_eq!(RunEventRecord::from_json(&record.to_json()), Ok(record));
    }
    let last = RunEventRecord {
        run_seq: RunSeq::MAX,
        ..record(1, event("RunStarted"))
    };
    assert_eq!(RunEventRecord::from_json(&last.to_json()), Ok(last));
}
