//! Tests of requests: templates, forms, authentication, and messages that cannot be rendered.

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::Provider as _;
use serde_json::{Value, json};

use super::{Service, kind, provider, reply, send};

#[tokio::test]
async fn a_request_is_what_its_templates_say() {
    let (service, url) = Service::start(|_| reply(201, r#"{"data":{"id":42}}"#)).await;
    let more = json!({
        "url": format!("{url}/calls/{{{{ recipient }}}}?to={{{{ to }}}}"),
        "method": "PUT",
        "headers": { "X-Item": "item {{ item }}" },
        "auth": { "bearer": { "secret": "API" } },
        "idempotency_header": "Idempotency-Key",
        "takes_keys_once": true,
        "answers": { "message_id": "/data/id" },
    });
    let http = provider(&url, &more);
    assert_eq!(send(&http).await, SendOutcome::Accepted(Some("42".into())));
    let heard = &service.heard()[0];
    assert_eq!(heard.line, "PUT /calls/ada?to=%2B49%2030%201");
    let body: Value = serde_json::from_str(&heard.body).unwrap();
    assert_eq!(body, json!({ "to": "+49 30 1", "text": "Say \"hi\"" }));
    for (name, value) in [
        ("x-item", "item j.0"),
        ("idempotency-key", "ab12"),
        ("authorization", "Bearer hunter2"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(
            heard.headers.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    let printed = format!("{http:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
    let nature = http.capabilities();
    assert_eq!(
        (nature.max_batch, nature.idempotent, nature.status_lookup),
        (1, true, false)
    );
}

#[tokio::test]
async fn a_form_and_other_ways_to_say_who_we_are() {
    let (service, url) = Service::start(|_| reply(200, "")).await;
    let form = json!({
        "headers": { "Content-Type": "application/x-www-form-urlencoded" },
        "body": "To={{ to }}&Body={{ text }}",
        "auth": { "basic": { "user": "shop", "password": { "secret": "API" } } },
    });
    assert_eq!(
        send(&provider(&url, &form)).await,
        SendOutcome::Accepted(None)
    );
    let own =
        json!({ "auth": { "header": { "name": "X-Api-Key", "value": { "secret": "API" } } } });
    assert_eq!(
        send(&provider(&url, &own)).await,
        SendOutcome::Accepted(None)
    );
    let heard = service.heard();
    assert_eq!(heard[0].body, "To=%2B49%2030%201&Body=Say%20%22hi%22");
    assert_eq!(heard[0].headers["authorization"], "Basic c2hvcDpodW50ZXIy");
    assert_eq!(heard[1].headers["x-api-key"], "hunter2");
}

#[tokio::test]
async fn what_cannot_be_made_is_not_sent() {
    let (service, url) = Service::start(|_| reply(200, "")).await;
    for more in [
        json!({ "body": r#"{"to": {{ nobody }}}"# }),
        json!({ "body": r#"{"to": "{{ to }}"}"# }),
        json!({ "headers": { "x-text": "{{ text }}\r\nx-more: 1" } }),
    ] {
        assert_eq!(kind(&send(&provider(&url, &more)).await), "unfit", "{more}");
    }
    assert!(service.heard().is_empty());
}
