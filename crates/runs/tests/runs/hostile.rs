//! Input that means harm: it is refused with a short sentence, and nothing panics or runs away.

use onward_runs::{ExtraFields, RunEventRecord, RunEventWrite};
use serde_json::json;

use super::contract::{members, read_error_of, with};
use super::script::{event, record};

#[test]
fn only_a_single_object_is_accepted() {
    let event = event("RunStarted").to_json();
    for text in [
        "",
        " ",
        "null",
        "1",
        "\"x\"",
        "[]",
        "{",
        "{}}",
        "{\"a\"}",
        "{\"a\":}",
        "\u{feff}{}",
        "{'a':1}",
    ] {
        assert!(RunEventWrite::from_json(text).is_err(), "{text}");
    }
    assert!(RunEventWrite::from_json(&format!("[{event}]")).is_err());
    assert!(RunEventWrite::from_json(&format!("{event}{event}")).is_err());
    assert!(RunEventWrite::from_json(&event.replace('}', ",}")).is_err());
    assert_eq!(
        read_error_of("[]"),
        "not a JSON object: invalid type: sequence, expected an object at line 1 column 0"
    );
}

#[test]
fn a_list_is_not_read_as_an_object() {
    let values: Vec<_> = members().into_iter().map(|(_, value)| value).collect();
    assert!(RunEventWrite::from_json(&json!(values).to_string()).is_err());
}

#[test]
fn no_prefix_of_an_event_is_an_event() {
    let text = record(
        3,
        event(r#"StepFailed load#2 {"error":{"code":"\u00e9","message":"é"}}"#),
    )
    .to_json();
    for (end, _) in text.char_indices() {
        assert!(RunEventRecord::from_json(&text[..end]).is_err(), "{end}");
    }
}

#[test]
fn nesting_is_bounded_without_recursion() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let payload = |depth: usize| {
        with("payload", json!({"a": 0}))
            .replace("{\"a\":0}", &format!("{{\"a\":{}}}", nested(depth)))
    };
    assert!(RunEventWrite::from_json(&payload(127)).is_ok());
    for depth in [128, 1_000_000] {
        let expected = "field `payload` is an object: expected an object, nested at most 128 deep";
        assert_eq!(read_error_of(&payload(depth)), expected);
    }
    let unknown = |depth: usize| {
        with("later", json!(0)).replace("\"later\":0", &format!("\"later\":{}", nested(depth)))
    };
    assert!(RunEventWrite::from_json(&unknown(127)).is_ok());
    assert!(RunEventWrite::from_json(&unknown(128)).is_err());
    assert!(
        RunEventWrite::from_json(
            &with("runId", json!(0))
                .replace("\"runId\":0", &format!("\"runId\":{}", nested(99_999)))
        )
        .is_err()
    );
}

#[test]
fn a_long_value_is_cut_and_a_control_is_escaped() {
    let long = read_error_of(&with("runId", json!("x|".repeat(1_000_000))));
    assert!(long.len() < 300, "{long}");
    let nasty = read_error_of(&with("tenantId", json!("a\u{1b}[2J\u{202e}\u{9b}\0")));
    assert!(
        nasty.starts_with(r#"field `tenantId` is "a\u{1b}[2J\u{202e}\u{9b}\0": expected"#),
        "{nasty}"
    );
    let number = read_error_of(
        &with("engineAttemptId", json!(1)).replace(":1,", &format!(":{},", "9".repeat(1_000_000))),
    );
    assert!(number.len() < 300, "{number}");
    let repeated = format!("{{\"{0}\":1,\"{0}\":2}}", "é".repeat(1_000_000));
    assert!(ExtraFields::parse(&repeated).unwrap_err().to_string().len() < 300);
}

#[test]
fn many_unknown_fields_are_read_in_linear_time() {
    let many: Vec<String> = (0..100_000)
        .map(|number| format!("\"f{number}\":{number}"))
        .collect();
    let extra = ExtraFields::parse(&format!("{{{}}}", many.join(","))).unwrap();
    assert_eq!(extra.as_json().unwrap().matches(',').count(), 99_999);
    assert!(ExtraFields::parse(&format!("{{{},\"f7\":0}}", many.join(","))).is_err());
}

#[test]
fn escapes_are_kept() {
    let text = event(r#"RunStarted {"a":"\u0000","b":"\ud83d\ude00","c":"\/"}"#).to_json();
    let text = text.replace("{\"eventId", "{\"later\":\"\\u0000\",\"eventId");
    let written = RunEventWrite::from_json(&text).unwrap().to_json();
    assert!(!written.contains('\0'));
    assert!(
        written
            .ends_with(r#""payload":{"a":"\u0000","b":"\ud83d\ude00","c":"\/"},"later":"\u0000"}"#),
        "{written}"
    );
}

#[test]
fn a_lone_surrogate_is_not_an_id() {
    let text = with("runId", json!("HALF")).replace("HALF", r"\ud800");
    assert_eq!(
        read_error_of(&text),
        "field `runId` is a string that is not Unicode: expected a string of 1 to 255 bytes without control characters or `|`"
    );
    let name = with("later", json!(1)).replace("later", r"\ud800");
    assert!(RunEventWrite::from_json(&name).is_err());
}
