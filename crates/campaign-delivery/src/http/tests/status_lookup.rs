//! Tests of the status lookup: asking the service for the outcome of an idempotency key.

use onward_campaign_core::LookupOutcome;
use onward_campaign_dispatch::Provider as _;
use serde_json::json;

use super::{Service, provider, reply};

#[tokio::test]
async fn a_service_can_be_asked_what_became_of_a_key() {
    let (service, url) = Service::start(|heard| match heard.line.rsplit('/').next().unwrap() {
        "taken" => reply(200, r#"{"list":[1],"state":"done","id":"m-1"}"#),
        "bounced" => reply(200, r#"{"list":[1],"state":"bounced"}"#),
        "empty" => reply(200, r#"{"list":[]}"#),
        "null" => reply(200, r#"{"list":null}"#),
        "none" => reply(200, r#"{}"#),
        "odd" => reply(200, "nonsense"),
        "stateless" => reply(200, r#"{"list":[1]}"#),
        "gone" => reply(404, ""),
        _ => reply(500, ""),
    })
    .await;
    let look = json!({
        "url": format!("{url}/keys/{{{{ key }}}}"), "nothing": [404], "found": "/list", "status": "/state",
        "refused": ["bounced"], "message_id": "/id",
    });
    let http = provider(
        &url,
        &json!({ "look": look, "auth": { "bearer": { "secret": "API" } } }),
    );
    assert!(http.capabilities().status_lookup);
    for (key, expected) in [
        ("taken", LookupOutcome::Accepted(Some("m-1".into()))),
        (
            "bounced",
            LookupOutcome::Refused("the service said of it: bounced".into()),
        ),
        ("empty", LookupOutcome::NotFound),
        ("null", LookupOutcome::NotFound),
        ("none", LookupOutcome::Unknown),
        ("gone", LookupOutcome::NotFound),
        ("odd", LookupOutcome::Unknown),
        ("stateless", LookupOutcome::Unknown),
        ("broken", LookupOutcome::Unknown),
    ] {
        assert_eq!(http.lookup_status(key).await, expected, "{key}");
    }
    assert_eq!(
        service.heard()[0].headers["authorization"],
        "Bearer hunter2"
    );
    assert_eq!(
        provider(&url, &json!({})).lookup_status("taken").await,
        LookupOutcome::Unknown
    );
}
