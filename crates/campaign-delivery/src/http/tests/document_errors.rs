//! Tests of the errors that an invalid HTTP provider document produces.

use std::time::Duration;

use serde_json::{Value, json};

use super::{HttpTestSecrets, spec};

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn an_invalid_configuration_is_rejected_with_the_name_of_the_setting() {
    let error_of = |more: &Value| {
        spec("https://api.example.org", more)
            .unwrap()
            .build_provider("api", &HttpTestSecrets)
            .unwrap_err()
            .to_string()
    };
    let batch = |more: Value| {
        let mut batch = json!({ "max_items": 10, "items": "/r", "id": "/i", "status": "/s" });
        batch
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "batch": batch })
    };
    for (more, expected) in [
        (
            json!({ "url": "http://api.example.org/" }),
            "would send everything unencrypted",
        ),
        (
            json!({ "url": "https://{{ to }}/" }),
            "without a template before the path",
        ),
        (
            json!({ "url": "https://api.example.org/{{ to" }),
            "`http.url`: invalid template",
        ),
        (
            json!({ "body": "{% for %}" }),
            "`http.body`: invalid template",
        ),
        (
            json!({ "method": "BREW" }),
            "BREW is not a supported method",
        ),
        (
            json!({ "headers": { "a b": "1" } }),
            "`http.headers`: `a b` is not the name of a header",
        ),
        (
            json!({ "auth": { "bearer": { "secret": "NONE" } } }),
            "ONWARD_SECRET_NONE",
        ),
        (
            json!({ "idempotent": true }),
            "requires that the idempotency key is sent",
        ),
        (
            json!({ "responses": { "duplicate": [409] } }),
            "requires `http.idempotent: true`",
        ),
        (
            json!({ "responses": { "deferred": ["5xx"] } }),
            "`http.responses.deferred`: \"5xx\" is not a status",
        ),
        (
            json!({ "headers": { "authorization": "Bearer hunter2" } }),
            "use `http.auth` with a reference to a secret",
        ),
        (
            json!({ "headers": { "Proxy-Authorization": "hunter2" } }),
            "use `http.auth` with a reference to a secret",
        ),
        (
            json!({ "headers": { "X-API-Key": "hunter2" } }),
            "use `http.auth` with a reference to a secret",
        ),
        (
            json!({ "headers": { "Cookie": "a=hunter2" } }),
            "use `http.auth` with a reference to a secret",
        ),
        (
            json!({ "responses": { "message_id": "id" } }),
            "is not a JSON pointer, such as /data/id",
        ),
        (
            batch(json!({ "max_items": 0 })),
            "must be between 1 and 100",
        ),
        (
            batch(json!({ "max_items": 101 })),
            "must be between 1 and 100",
        ),
        (
            batch(json!({ "items": "results" })),
            "is not a JSON pointer, such as /data/id",
        ),
        (
            json!({ "status_lookup": { "url": "https://other.example.org/{{ key }}", "not_found": [404] } }),
            "leads to another host than `http.url`",
        ),
        (
            json!({ "status_lookup": { "url": "https://api.example.org/{{ key }}" } }),
            "requires `not_found`, such as [404], or `found`",
        ),
    ] {
        let error = error_of(&more);
        assert!(
            error.contains(expected) && !error.contains("hunter2"),
            "{more}: {error}"
        );
    }
    let mut keyed = batch(json!({}));
    keyed["idempotency_header"] = json!("Key");
    assert!(error_of(&keyed).contains("which has a key per item"));
    let mut named = batch(json!({}));
    named["responses"] = json!({ "message_id": "/id" });
    assert!(error_of(&named).contains("use `http.batch.message_id`"));
    for more in [
        json!({ "retries": 3 }),
        json!({ "auth": { "bearer": "hunter2" } }),
        json!({ "auth": { "basic": { "user": "shop", "password": { "secret": "API" }, "realm": "x" } } }),
        json!({ "responses": { "ok": [200] } }),
    ] {
        assert!(spec("https://api.example.org", &more).is_err(), "{more}");
    }
    let slow = spec("https://api.example.org", &json!({ "timeout_ms": 1_500 })).unwrap();
    assert_eq!(
        slow.provider_defaults().timeout,
        Duration::from_millis(1_500)
    );
}
