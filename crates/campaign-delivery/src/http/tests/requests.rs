//! Tests of requests: templates, forms, authentication, and messages that cannot be rendered.

use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::Provider as _;
use serde_json::{Value, json};

use super::{ScriptedHttpService, message, outcome_name, provider, reply, send};
use crate::outgoing_item::OutgoingItem;

#[tokio::test]
async fn a_request_is_rendered_from_its_templates() {
    let (service, url) = ScriptedHttpService::start(|_| reply(201, r#"{"data":{"id":42}}"#)).await;
    let more = json!({
        "url": format!("{url}/calls/{{{{ recipient }}}}?to={{{{ to }}}}"),
        "method": "PUT",
        "headers": { "X-Item": "item {{ item }}" },
        "auth": { "bearer": { "secret": "API" } },
        "idempotency_header": "Idempotency-Key",
        "idempotent": true,
        "responses": { "message_id": "/data/id" },
    });
    let http = provider(&url, &more);
    assert_eq!(send(&http).await, SendOutcome::Accepted(Some("42".into())));
    let request = &service.requests()[0];
    assert_eq!(request.line, "PUT /calls/ada?to=%2B49%2030%201");
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body, json!({ "to": "+49 30 1", "text": "Say \"hi\"" }));
    for (name, value) in [
        ("x-item", "item j.0"),
        ("idempotency-key", "ab12"),
        ("authorization", "Bearer hunter2"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(
            request.headers.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    let printed = format!("{http:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
    let capabilities = http.capabilities();
    assert_eq!(
        (
            capabilities.max_batch,
            capabilities.idempotent,
            capabilities.status_lookup
        ),
        (1, true, false)
    );
}

#[tokio::test]
async fn a_form_body_and_the_other_kinds_of_authentication() {
    let (service, url) = ScriptedHttpService::start(|_| reply(200, "")).await;
    let form = json!({
        "headers": { "Content-Type": "application/x-www-form-urlencoded" },
        "body": "To={{ to }}&Body={{ text }}",
        "auth": { "basic": { "user": "shop", "password": { "secret": "API" } } },
    });
    assert_eq!(
        send(&provider(&url, &form)).await,
        SendOutcome::Accepted(None)
    );
    let custom =
        json!({ "auth": { "header": { "name": "X-Api-Key", "value": { "secret": "API" } } } });
    assert_eq!(
        send(&provider(&url, &custom)).await,
        SendOutcome::Accepted(None)
    );
    let requests = service.requests();
    assert_eq!(requests[0].body, "To=%2B49%2030%201&Body=Say%20%22hi%22");
    assert_eq!(
        requests[0].headers["authorization"],
        "Basic c2hvcDpodW50ZXIy"
    );
    assert_eq!(requests[1].headers["x-api-key"], "hunter2");
}

#[tokio::test]
async fn a_request_that_cannot_be_rendered_is_not_sent() {
    let (service, url) = ScriptedHttpService::start(|_| reply(200, "")).await;
    for more in [
        json!({ "body": r#"{"to": {{ undefined }}}"# }),
        json!({ "body": r#"{"to": "{{ to }}"}"# }),
        json!({ "headers": { "x-text": "{{ text }}\r\nx-more: 1" } }),
    ] {
        assert_eq!(
            outcome_name(&send(&provider(&url, &more)).await),
            "invalid",
            "{more}"
        );
    }
    assert!(service.requests().is_empty());
}

#[tokio::test]
async fn a_recipient_cannot_change_the_path_of_its_request() {
    let (service, url) = ScriptedHttpService::start(|_| reply(200, "")).await;
    let more = json!({ "url": format!("{url}/u/{{{{ recipient }}}}/end?to={{{{ to }}}}") });
    let http = provider(&url, &more);
    let message = message("Hello");
    for (recipient, path) in [
        ("..", None),
        (".", None),
        ("%2e%2E", None),
        ("a/../..", None),
        ("a/b", Some("/u/a%2Fb/end")),
        ("a..b", Some("/u/a..b/end")),
    ] {
        let outcome = http
            .send_one(&OutgoingItem {
                item_id: "j.0",
                key: "ab12",
                to: "..",
                recipient,
                message: &message,
            })
            .await;
        let sent = service.requests().pop().map(|request| request.line);
        match path {
            None => {
                assert_eq!(
                    outcome_name(&outcome),
                    "invalid",
                    "{recipient}: {outcome:?}"
                );
                assert_eq!(sent, None, "{recipient}");
            }
            Some(path) => assert_eq!(sent, Some(format!("POST {path}?to=.."))),
        }
    }
}
