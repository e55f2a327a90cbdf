//! The JSON Lines form: what is liberal, what is strict, and how errors read.

use expect_test::expect;
use onward_base::Timestamp;
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{
    DeliveryGuarantee, Event, ExecutionId, InvokeKind, InvokePerformer, RetryPolicy, Rule, codec,
};

use super::script::*;

const DIGEST: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// A line with these fields after the common ones.
fn line(event: &str, fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        r#"{{"sequence":0,"timestamp":"1970-01-01T00:00:00Z","event":"{event}"{comma}{fields}}}"#
    )
}

fn read(event: &str, fields: &str) -> Event {
    JournalLineReader::for_execution(own())
        .read_line(&line(event, fields))
        .unwrap()
        .event
}

fn read_error_of(line: &str) -> String {
    JournalLineReader::for_execution(own())
        .read_line(line)
        .unwrap_err()
        .to_string()
}

#[test]
fn optional_fields_may_be_null_or_absent() {
    let bare = read(
        "ExecutionStarted",
        &format!(r#""component_digest":"{DIGEST}","input":0"#),
    );
    assert_eq!(bare, started());
    let nulls = format!(
        r#""component_digest":"{DIGEST}","input":0,"parent_id":null,"idempotency_key":null"#
    );
    assert_eq!(read("ExecutionStarted", &nulls), started());
    let invoke = r#""promise_id":"root.0","kind":"function","function_name":"task","input":0"#;
    assert_eq!(read("InvokeScheduled", invoke), scheduled(0));
    assert_eq!(
        read(
            "InvokeScheduled",
            &format!(r#"{invoke},"retry_policy":null,"delivery":null"#)
        ),
        scheduled(0)
    );
    assert_eq!(
        read(
            "InvokeScheduled",
            &format!(r#"{invoke},"delivery":"at_least_once""#)
        ),
        scheduled(0)
    );
    assert_eq!(
        read("ExecutionCompleted", r#""result":0,"continued_as":null"#),
        complete()
    );
    assert_eq!(
        read("CancelRequested", ""),
        Event::CancelRequested { reason: "".into() }
    );
}

#[test]
fn fields_added_by_later_versions_are_ignored() {
    assert_eq!(
        read(
            "TimerFired",
            r#""promise_id":"root.3","colour":[1,{"a":null}]"#
        ),
        fired(3)
    );
}

#[test]
fn an_empty_policy_is_the_default_policy() {
    let invoke = r#""promise_id":"root.0","kind":"function","function_name":"task","input":0,"retry_policy":{}"#;
    assert_eq!(
        read("InvokeScheduled", invoke),
        scheduled_with(0, Some(RetryPolicy::default()))
    );
}

#[test]
fn a_null_result_is_a_result() {
    let null = read(
        "InvokeCompleted",
        r#""promise_id":"root.0","result":{"ok":null},"attempt":1"#,
    );
    assert!(
        matches!(null, Event::InvokeCompleted { result: Ok(value), .. } if value.as_str() == "null")
    );
}

#[test]
fn an_absent_half_of_a_result_may_be_null() {
    let result = |text: &str| {
        read(
            "InvokeCompleted",
            &format!(r#""promise_id":"root.0","result":{text},"attempt":1"#),
        )
    };
    assert_eq!(result(r#"{"ok":1,"err":null}"#), result(r#"{"ok":1}"#));
    assert_eq!(
        result(r#"{"ok":null,"err":"no"}"#),
        result(r#"{"err":"no"}"#)
    );
    assert_eq!(
        result(r#"{"ok":null,"err":null}"#),
        result(r#"{"ok":null}"#)
    );
}

#[test]
fn errors_have_a_kind_or_are_plain_text() {
    let failed = |error: &str| read("ExecutionFailed", &format!(r#""error":{error}"#));
    assert_eq!(failed(r#""gave up""#), fail());
    assert_eq!(
        failed(r#"{"kind":"user_error","message":"gave up"}"#),
        fail()
    );
    for retryable in ["true", "null"] {
        assert_eq!(
            failed(&format!(
                r#"{{"kind":"user_error","message":"gave up","retryable":{retryable}}}"#
            )),
            fail()
        );
    }
    let permanent = Event::ExecutionFailed {
        error: error("gave up").into_permanent(),
    };
    assert_eq!(
        failed(r#"{"kind":"user_error","message":"gave up","retryable":false}"#),
        permanent
    );
    assert!(matches!(failed(r#"{"kind":"card_declined"}"#),
        Event::ExecutionFailed { error } if error.kind.as_str() == "card_declined" && error.message.is_empty()));
}

#[test]
fn instants_are_rfc_3339_or_milliseconds() {
    for time in [r#""1970-01-01T01:00:00.005+01:00""#, "5"] {
        let event = read(
            "TimeRecorded",
            &format!(r#""promise_id":"root.0","time":{time}"#),
        );
        assert!(
            matches!(event, Event::TimeRecorded { time, .. } if time == Timestamp::EPOCH.plus_ms(5))
        );
    }
}

#[test]
fn random_values_are_hex_with_or_without_a_prefix() {
    for value in ["0102", "0x0102"] {
        assert_eq!(
            read(
                "RandomGenerated",
                &format!(r#""promise_id":"root.0","value":"{value}""#)
            ),
            random(0)
        );
    }
    let upper = read("RandomGenerated", r#""promise_id":"root.0","value":"0xAB""#);
    assert!(matches!(upper, Event::RandomGenerated { value, .. } if *value == [0xab]));
}

#[test]
fn the_first_hash_is_the_journals_own_and_any_other_is_foreign() {
    let mut reader = JournalLineReader::new();
    let hash = "ab".repeat(32);
    let fired = |reader: &mut JournalLineReader, id: &str| {
        reader
            .read_line(&line("TimerFired", &format!(r#""promise_id":"{id}""#)))
            .unwrap()
            .event
    };
    let own = reader.execution_id();
    assert_eq!(
        fired(&mut reader, "root.1"),
        Event::TimerFired {
            promise_id: own.child_promise(1)
        }
    );
    assert_eq!(
        fired(&mut reader, &format!("{hash}.2")),
        Event::TimerFired {
            promise_id: own.child_promise(2)
        }
    );
    let foreign = format!("{}.2", "cd".repeat(32));
    assert_eq!(
        fired(&mut reader, &foreign),
        Event::TimerFired {
            promise_id: foreign.parse().unwrap()
        }
    );
}

#[test]
fn the_hash_of_a_parent_is_not_read_as_the_journals_own() {
    let mut reader = JournalLineReader::new();
    let fields = format!(
        r#""component_digest":"{DIGEST}","input":0,"parent_id":"{}.4""#,
        "ab".repeat(32)
    );
    let parent = reader
        .read_line(&line("ExecutionStarted", &fields))
        .unwrap()
        .event;
    let expected = ExecutionId::from_bytes([0xab; 32]).child_promise(4);
    assert!(
        matches!(parent, Event::ExecutionStarted { parent_id: Some(id), .. } if id == expected)
    );
    let set = reader
        .read_line(&line(
            "JoinSetCreated",
            &format!(r#""join_set_id":"{}.0""#, "cd".repeat(32)),
        ))
        .unwrap();
    let own = reader.execution_id();
    assert!(
        matches!(set.event, Event::JoinSetCreated { join_set_id } if join_set_id.0 == own.child_promise(0))
    );
}

#[test]
fn the_performer_of_an_attempt_is_kept_and_not_read_as_the_journals_own_hash() {
    let mut reader = JournalLineReader::new();
    let fields = format!(
        r#""promise_id":"root.0","attempt":1,"child":"{}""#,
        "ab".repeat(32)
    );
    let started = reader.read_line(&line("InvokeStarted", &fields)).unwrap();
    let performer = InvokePerformer::Child(ExecutionId::from_bytes([0xab; 32]));
    let promise_id = reader.execution_id().child_promise(0);
    assert_eq!(
        started.event,
        Event::InvokeStarted {
            promise_id,
            attempt: 1,
            performer
        }
    );
    let shown = JournalLine::new(&started, reader.execution_id()).to_string();
    assert!(
        shown.ends_with(&format!(r#""child":"{}"}}"#, "ab".repeat(32))),
        "{shown}"
    );
    let record = codec::encode_record(own(), &[started]).unwrap();
    let event = codec::decode_record(own(), &record)
        .unwrap()
        .remove(0)
        .event;
    assert!(
        matches!(event, Event::InvokeStarted { performer: InvokePerformer::Child(id), .. } if id.as_bytes() == &[0xab; 32])
    );
    assert!(event.describe(own()).to_string().contains("child=abab"));
}

#[test]
fn the_hash_of_a_successor_is_not_read_as_the_journals_own() {
    let mut reader = JournalLineReader::new();
    let fields = format!(r#""result":0,"continued_as":"{}""#, "ab".repeat(32));
    let end = reader
        .read_line(&line("ExecutionCompleted", &fields))
        .unwrap()
        .event;
    let continued_as = Some(ExecutionId::from_bytes([0xab; 32]));
    assert_eq!(
        end,
        Event::ExecutionCompleted {
            result: payload(0),
            continued_as
        }
    );
    let fired = reader
        .read_line(&line(
            "TimerFired",
            &format!(r#""promise_id":"{}.0""#, "cd".repeat(32)),
        ))
        .unwrap();
    assert_eq!(
        fired.event,
        Event::TimerFired {
            promise_id: reader.execution_id().child_promise(0)
        }
    );
}

#[test]
fn events_that_violate_a_rule_are_still_readable() {
    let mut events = record(&[started(), scheduled(0), attempted(0, 1)]);
    let text = line("InvokeStarted", r#""promise_id":"root.0","attempt":0"#);
    events[2].event = JournalLineReader::for_execution(own())
        .read_line(&text)
        .unwrap()
        .event;
    assert_eq!(judge(&events).unwrap_err().rule, Rule::H4);
}

/// Lines that cannot be read, each for another reason.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
fn unreadable() -> Vec<String> {
    let promise = r#""promise_id":"root.0""#;
    let http = |policy: &str| {
        let fields = r#""kind":"http","function_name":"f","input":1,"retry_policy""#;
        line("InvokeScheduled", &format!("{promise},{fields}:{policy}"))
    };
    let completed = |result: &str| {
        line(
            "InvokeCompleted",
            &format!(r#"{promise},"attempt":1,"result":{result}"#),
        )
    };
    vec![
        String::new(),
        "[]".to_owned(),
        "{".to_owned(),
        r#"{"sequence":0}"#.to_owned(),
        r#"{"sequence":-1}"#.to_owned(),
        r#"{"sequence":0,"sequence":0}"#.to_owned(),
        line("InvokeFailed", ""),
        line("TimerFired", ""),
        line("TimerFired", r#""promise_id":7"#),
        line("TimerFired", r#""promise_id":"root.x""#),
        line(
            "TimerFired",
            &format!(r#""promise_id":"root{}""#, ".0".repeat(65)),
        ),
        line("TimerFired", r#""promise_id":"\u001b]0;title\u0007""#),
        line(
            "TimerFired",
            &format!(r#""promise_id":"{}""#, "9".repeat(10_000)),
        ),
        line(
            "InvokeStarted",
            "\"promise_id\":\"root.0\",\"attempt\":\"\u{9b}\u{7f}\u{202e}\"",
        ),
        line("InvokeStarted", &format!(r#"{promise},"attempt":1.5"#)),
        line(
            "ExecutionCompleted",
            &format!(r#""result":{}1{}"#, "[".repeat(129), "]".repeat(129)),
        ),
        completed("{}"),
        completed("[1]"),
        completed(r#"{"err":["trap"]}"#),
        completed(r#"{"ok":1,"err":"x"}"#),
        completed(r#"{"err":{"kind":""}}"#),
        line("InvokeScheduled", &format!(r#"{promise},"kind":"grpc""#)),
        line(
            "InvokeScheduled",
            &format!(r#"{promise},"kind":"http","function_name":"f","input":1,"delivery":"twice""#),
        ),
        http(r#"{"factor":0.5}"#),
        http(r#"{"factor":1000.1}"#),
        http(r#"{"jitter":-0.0001}"#),
        http(r#"{"jitter":1.1}"#),
        http(r#"{"max_attempts":0}"#),
        http(r#"{"non_retryable_kinds":[""]}"#),
        line("RandomGenerated", &format!(r#"{promise},"value":"abc""#)),
        line(
            "TimerScheduled",
            &format!(r#"{promise},"duration_ms":1,"fire_at":"soon""#),
        ),
        line(
            "TimerScheduled",
            &format!(r#"{promise},"duration_ms":1,"fire_at":9223372036854775807"#),
        ),
        line(
            "ExecutionAwaiting",
            r#""waiting_on":["root.0"],"kind":"signal""#,
        ),
        line(
            "ExecutionAwaiting",
            r#""waiting_on":["root.0"],"kind":"some""#,
        ),
        line("ExecutionAwaiting", r#""waiting_on":"root.0","kind":"any""#),
        line("ExecutionStarted", r#""component_digest":"abc","input":1"#),
        line("ExecutionCompleted", ""),
        line("ExecutionCompleted", r#""result":1,"continued_as":"root""#),
        line("ExecutionFailed", r#""error":{"message":"no kind"}"#),
        line(
            "ExecutionFailed",
            r#""error":{"kind":"trap","retryable":1}"#,
        ),
        line(
            "SignalDelivered",
            r#""signal_name":"go","payload":1,"delivery_id":"1""#,
        ),
    ]
}

#[test]
fn errors_name_the_field_and_what_was_expected() {
    let text: String = unreadable()
        .iter()
        .map(|text| read_error_of(text) + "\n")
        .collect();
    assert!(
        !text.chars().any(|char| char.is_control() && char != '\n'),
        "nothing reaches the terminal"
    );
    expect![[r#"
        not a journal event: expected one JSON object: it begins with something else
        not a journal event: expected one JSON object: it begins with something else
        not a journal event: expected one JSON object: EOF while parsing an object at column 1
        field `timestamp` is missing: expected an RFC 3339 instant such as "2026-03-01T12:00:00Z"
        field `sequence` is -1: expected an integer from 0
        not a journal event: expected one JSON object: duplicate field `sequence` at column 24
        field `event` is "InvokeFailed": expected one of the 20 names, such as "InvokeScheduled"
        TimerFired: field `promise_id` is missing: expected a promise id such as "root.1"
        TimerFired: field `promise_id` is 7: expected a promise id such as "root.1"
        TimerFired: field `promise_id`: `root.x` is not an id: after the root each part is a number from 0 to 4294967295, without leading zeros
        TimerFired: field `promise_id`: a call tree is at most 64 levels deep, this id has 65
        TimerFired: field `promise_id`: `�]0;title�` is not an id: expected `root` or 64 hex digits, then `.NUMBER` for each level
        TimerFired: field `promise_id`: `99999999999999999999999999999999999999999999999999999999999…` is not an id: expected `root` or 64 hex digits, then `.NUMBER` for each level
        InvokeStarted: field `attempt` is "���": expected an integer from 1 to 4294967295
        InvokeStarted: field `attempt` is 1.5: expected an integer from 1 to 4294967295
        ExecutionCompleted: field `result` is [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[…: expected any JSON value, nested at most 128 deep
        InvokeCompleted: field `result` is {}: expected {"ok": VALUE} or {"err": {"kind": …, "message": …}}
        InvokeCompleted: field `result` is [1]: expected {"ok": VALUE} or {"err": {"kind": …, "message": …}}
        InvokeCompleted: field `result` is {"err":["trap"]}: expected {"ok": VALUE} or {"err": {"kind": …, "message": …}}
        InvokeCompleted: field `result` is {"ok":1,"err":"x"}: expected {"ok": VALUE} or {"err": {"kind": …, "message": …}}
        InvokeCompleted: field `result` is {"err":{"kind":""}}: expected {"ok": VALUE} or {"err": {"kind": …, "message": …}}
        InvokeScheduled: field `kind` is "grpc": expected "function" or "http"
        InvokeScheduled: field `delivery` is "twice": expected "at_least_once" or "at_most_once"
        InvokeScheduled: field `retry_policy` is {"factor":0.5}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        InvokeScheduled: field `retry_policy` is {"factor":1000.1}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        InvokeScheduled: field `retry_policy` is {"jitter":-0.0001}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        InvokeScheduled: field `retry_policy` is {"jitter":1.1}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        InvokeScheduled: field `retry_policy` is {"max_attempts":0}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        InvokeScheduled: field `retry_policy` is {"non_retryable_kinds":[""]}: expected an object with max_attempts (from 1, or null for no limit), initial_interval_ms, max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms
        RandomGenerated: field `value` is "abc": expected a string of hex digits
        TimerScheduled: field `fire_at` is "soon": expected an RFC 3339 instant such as "2026-03-01T12:00:00Z"
        TimerScheduled: field `fire_at` is 9223372036854775807: expected an RFC 3339 instant such as "2026-03-01T12:00:00Z"
        ExecutionAwaiting: field `signal_name` is missing: expected a string of 1 to 1024 bytes without control characters
        ExecutionAwaiting: field `kind` is "some": expected "single", "any", "all" or "signal"
        ExecutionAwaiting: field `waiting_on` is "root.0": expected a list of promise ids
        ExecutionStarted: field `component_digest`: `abc` is not a component digest: expected `sha256:` and 64 hex digits
        ExecutionCompleted: field `result` is missing: expected any JSON value, nested at most 128 deep
        ExecutionCompleted: field `continued_as` is "root": expected an execution id of 64 hex digits
        ExecutionFailed: field `error` is {"message":"no kind"}: expected an object with a string `kind` (and `message`, and `retryable`), or a string
        ExecutionFailed: field `error` is {"kind":"trap","retryable":1}: expected an object with a string `kind` (and `message`, and `retryable`), or a string
        SignalDelivered: field `delivery_id` is "1": expected an integer from 0
    "#]].assert_eq(&text);
}

#[test]
fn a_line_has_its_fields_in_a_fixed_order() {
    let once = Event::InvokeScheduled {
        promise_id: promise(1),
        kind: InvokeKind::Http,
        function_name: name("GET /"),
        input: payload(0),
        retry_policy: None,
        delivery: DeliveryGuarantee::AtMostOnce,
    };
    let continued = Event::ExecutionCompleted {
        result: payload(0),
        continued_as: Some(own()),
    };
    let gave_up = Event::ExecutionFailed {
        error: error("gave up").into_permanent(),
    };
    let events = [
        started(),
        scheduled_with(0, Some(RetryPolicy::default())),
        retrying(0, 1),
        once,
        continued,
        gave_up,
    ];
    let lines: String = record(&events)
        .iter()
        .map(|event| format!("{}\n", JournalLine::new(event, own())))
        .collect();
    expect![[r#"
        {"sequence":0,"timestamp":"1970-01-01T00:00:00Z","event":"ExecutionStarted","component_digest":"sha256:0707070707070707070707070707070707070707070707070707070707070707","input":0,"parent_id":null,"idempotency_key":null}
        {"sequence":1,"timestamp":"1970-01-01T00:00:00.001Z","event":"InvokeScheduled","promise_id":"root.0","kind":"function","function_name":"task","input":0,"retry_policy":{"max_attempts":10,"initial_interval_ms":1000,"max_interval_ms":60000,"factor":2.0,"jitter":0.1,"non_retryable_kinds":[],"timeout_ms":null}}
        {"sequence":2,"timestamp":"1970-01-01T00:00:00.002Z","event":"InvokeRetrying","promise_id":"root.0","failed_attempt":1,"error":{"kind":"user_error","message":"not yet"},"retry_at":"1970-01-01T00:00:00Z"}
        {"sequence":3,"timestamp":"1970-01-01T00:00:00.003Z","event":"InvokeScheduled","promise_id":"root.1","kind":"http","function_name":"GET /","input":0,"retry_policy":null,"delivery":"at_most_once"}
        {"sequence":4,"timestamp":"1970-01-01T00:00:00.004Z","event":"ExecutionCompleted","result":0,"continued_as":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"}
        {"sequence":5,"timestamp":"1970-01-01T00:00:00.005Z","event":"ExecutionFailed","error":{"kind":"user_error","message":"gave up","retryable":false}}
    "#]].assert_eq(&lines);
}
