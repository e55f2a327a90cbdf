//! Tests of the errors that an invalid HTTP provider document produces.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Known, spec};

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn what_is_wrong_in_a_document_is_said() {
    let refused = |more: &Value| {
        spec("https://api.example.org", more)
            .unwrap()
            .build_provider("api", &Known)
            .unwrap_err()
    };
    let batch = |more: Value| {
        let mut batch = json!({ "max": 10, "items": "/r", "id": "/i", "status": "/s" });
        batch
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "batch": batch })
    };
    for (more, said) in [
        (json!({ "url": "http://api.example.org/" }), "in the clear"),
        (
            json!({ "url": "https://{{ to }}/" }),
            "without a template before the path",
        ),
        (
            json!({ "url": "https://api.example.org/{{ to" }),
            "the URL cannot be read",
        ),
        (json!({ "body": "{% for %}" }), "the body cannot be read"),
        (json!({ "method": "BREW" }), "BREW is not a method"),
        (
            json!({ "headers": { "a b": "1" } }),
            "is not the name of a header",
        ),
        (
            json!({ "auth": { "bearer": { "secret": "NONE" } } }),
            "ONWARD_SECRET_NONE",
        ),
        (json!({ "takes_keys_once": true }), "the key is not sent"),
        (
            json!({ "answers": { "duplicate": [409] } }),
            "takes_keys_once",
        ),
        (
            json!({ "answers": { "later": ["5xx"] } }),
            "is not a status",
        ),
        (
            json!({ "headers": { "authorization": "Bearer hunter2" } }),
            "put it into `auth`, by a secret",
        ),
        (
            json!({ "headers": { "Proxy-Authorization": "hunter2" } }),
            "put it into `auth`, by a secret",
        ),
        (
            json!({ "headers": { "X-API-Key": "hunter2" } }),
            "put it into `auth`, by a secret",
        ),
        (
            json!({ "headers": { "Cookie": "a=hunter2" } }),
            "put it into `auth`, by a secret",
        ),
        (
            json!({ "answers": { "message_id": "id" } }),
            "is not a JSON pointer",
        ),
        (batch(json!({ "max": 0 })), "from 1 to 100"),
        (batch(json!({ "max": 101 })), "from 1 to 100"),
        (
            batch(json!({ "items": "results" })),
            "is not a JSON pointer",
        ),
        (
            json!({ "look": { "url": "https://other.example.org/{{ key }}", "nothing": [404] } }),
            "another host",
        ),
        (
            json!({ "look": { "url": "https://api.example.org/{{ key }}" } }),
            "when nothing is known",
        ),
    ] {
        let words = refused(&more);
        assert!(
            words.contains(said) && !words.contains("hunter2"),
            "{more}: {words}"
        );
    }
    let mut keyed = batch(json!({}));
    keyed["idempotency_header"] = json!("Key");
    assert!(refused(&keyed).contains("a batch has many"));
    let mut named = batch(json!({}));
    named["answers"] = json!({ "message_id": "/id" });
    assert!(refused(&named).contains("put message_id into batch"));
    for more in [
        json!({ "retries": 3 }),
        json!({ "auth": { "bearer": "hunter2" } }),
        json!({ "auth": { "basic": { "user": "shop", "password": { "secret": "API" }, "realm": "x" } } }),
        json!({ "answers": { "ok": [200] } }),
    ] {
        assert!(spec("https://api.example.org", &more).is_err(), "{more}");
    }
    let slow = spec("https://api.example.org", &json!({ "timeout_ms": 1_500 })).unwrap();
    assert_eq!(
        slow.provider_defaults().timeout,
        Duration::from_millis(1_500)
    );
}
