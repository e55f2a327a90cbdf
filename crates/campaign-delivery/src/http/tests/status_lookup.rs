//! Tests of the status lookup: asking the service for the outcome of an idempotency key.

use onward_campaign_core::LookupOutcome;
use onward_campaign_dispatch::Provider as _;
use serde_json::json;

use super::{ScriptedHttpService, provider, reply};

#[tokio::test]
async fn a_status_lookup_returns_the_outcome_of_a_key() {
    let (service, url) =
        ScriptedHttpService::start(|request| match request.line.rsplit('/').next().unwrap() {
            "accepted" => reply(200, r#"{"list":[1],"state":"done","id":"m-1"}"#),
            "bounced" => reply(200, r#"{"list":[1],"state":"bounced"}"#),
            "empty" => reply(200, r#"{"list":[]}"#),
            "null" => reply(200, r#"{"list":null}"#),
            "none" => reply(200, r#"{}"#),
            "odd" => reply(200, "nonsense"),
            "stateless" => reply(200, r#"{"list":[1]}"#),
            "missing" => reply(404, ""),
            _ => reply(500, ""),
        })
        .await;
    let lookup = json!({
        "url": format!("{url}/keys/{{{{ key }}}}"), "not_found": [404], "found": "/list", "status": "/state",
        "rejected": ["bounced"], "message_id": "/id",
    });
    let http = provider(
        &url,
        &json!({ "status_lookup": lookup, "auth": { "bearer": { "secret": "API" } } }),
    );
    assert!(http.capabilities().status_lookup);
    for (key, expected) in [
        ("accepted", LookupOutcome::Accepted(Some("m-1".into()))),
        (
            "bounced",
            LookupOutcome::Refused("the status of the item is bounced".into()),
        ),
        ("empty", LookupOutcome::NotFound),
        ("null", LookupOutcome::NotFound),
        ("none", LookupOutcome::Unknown),
        ("missing", LookupOutcome::NotFound),
        ("odd", LookupOutcome::Unknown),
        ("stateless", LookupOutcome::Unknown),
        ("broken", LookupOutcome::Unknown),
    ] {
        assert_eq!(http.lookup_status(key).await, expected, "{key}");
    }
    assert_eq!(
        service.requests()[0].headers["authorization"],
        "Bearer hunter2"
    );
    assert_eq!(
        provider(&url, &json!({})).lookup_status("accepted").await,
        LookupOutcome::Unknown
    );
}
