//! Tests of responses: status codes, throttling, redirects, invalid bodies and secrets in bodies.

use axum::body::Body;
use axum::http::Response;
use onward_campaign_core::SendOutcome;
use serde_json::json;

use super::{
    RecordedRequest, ScriptedHttpService, outcome_name, provider, reply, send, send_batch,
};

#[tokio::test]
async fn a_status_has_its_usual_or_its_configured_meaning() {
    let status = |request: &RecordedRequest| request.headers["x-status"].parse().unwrap();
    let (_service, url) =
        ScriptedHttpService::start(move |request| reply(status(request), "")).await;
    for (status, plain, mapped) in [
        (200, "accepted", "accepted"),
        (204, "accepted", "accepted"),
        (302, "refused", "refused"),
        (400, "refused", "refused"),
        (404, "refused", "refused"),
        (408, "unknown", "unknown"),
        (409, "refused", "accepted"),
        (425, "throttled", "throttled"),
        (429, "throttled", "throttled"),
        (500, "unknown", "deferred"),
        (502, "unknown", "deferred"),
        (503, "unknown", "throttled"),
        (504, "unknown", "unknown"),
        (401, "throttled", "refused"),
        (403, "throttled", "throttled"),
        (407, "throttled", "throttled"),
    ] {
        let header = json!({ "x-status": status.to_string() });
        let outcome = send(&provider(&url, &json!({ "headers": header }))).await;
        assert_eq!(outcome_name(&outcome), plain, "{status}: {outcome:?}");
        let more = json!({
            "headers": header, "idempotency_header": "Key", "idempotent": true,
            "responses": { "duplicate": [409], "deferred": [500, 502], "throttled": [503], "rejected": [401] },
        });
        let outcome = send(&provider(&url, &more)).await;
        assert_eq!(outcome_name(&outcome), mapped, "{status}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_throttling_response_carries_the_retry_after_delay() {
    let throttled = |after: &'static str| {
        move |_: &RecordedRequest| {
            let date = "Sun, 06 Nov 1994 08:49:37 GMT";
            let reply = Response::builder()
                .status(429)
                .header("retry-after", after)
                .header("date", date);
            reply
                .body(Body::from(r#"{"error":{"message":"slow down"}}"#))
                .unwrap()
        }
    };
    let more = json!({ "responses": { "error": "/error/message" } });
    for (after, ms) in [
        ("7", Some(7_000)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60_000)),
        ("soon", None),
    ] {
        let (_service, url) = ScriptedHttpService::start(throttled(after)).await;
        let outcome = send(&provider(&url, &more)).await;
        assert_eq!(
            outcome,
            SendOutcome::Throttled("the service responded with 429: slow down".into(), ms)
        );
    }
}

#[tokio::test]
async fn a_secret_in_a_response_is_redacted() {
    let echo = json!({ "reason": "bad login shop:hunter2 (Basic c2hvcDpodW50ZXIy)", "id": "hunter2", "state": "no hunter2",
        "results": [{ "ref": "ab12", "state": "no hunter2", "reason": "hunter2" }] });
    let status = |request: &RecordedRequest| request.headers["x-status"].parse().unwrap();
    let (_service, url) =
        ScriptedHttpService::start(move |request| reply(status(request), echo.to_string())).await;
    let basic = json!({ "basic": { "user": "shop", "password": { "secret": "API" } } });
    for (status, auth) in [
        (200, &basic),
        (401, &basic),
        (400, &json!({ "bearer": { "secret": "API" } })),
    ] {
        let headers = json!({ "x-status": status.to_string() });
        let more = json!({ "headers": headers, "auth": auth, "responses": { "error": "/reason", "message_id": "/id" } });
        let printed = format!("{:?}", send(&provider(&url, &more)).await);
        let is_redacted = !printed.contains("hunter2")
            && (status == 400 || !printed.contains("c2hvcDpodW50ZXIy"));
        assert!(is_redacted && printed.contains("(secret)"), "{printed}");
    }
    let entries = json!({ "max_items": 1, "items": "/results", "id": "/ref", "status": "/state", "error": "/reason",
        "rejected": ["no hunter2"] });
    let lookup = json!({ "url": format!("{url}/x"), "found": "/id", "status": "/state", "rejected": ["no hunter2"] });
    let more = json!({ "headers": { "x-status": "200" }, "auth": basic, "batch": entries, "status_lookup": lookup, "body": "[]" });
    let outcomes = send_batch(&provider(&url, &more), &["ab12"]).await;
    assert_eq!(
        outcomes,
        [SendOutcome::Refused(
            "the status of the item is no (secret): (secret)".into()
        )]
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let moved = |_: &RecordedRequest| {
        Response::builder()
            .status(307)
            .header("location", "/other")
            .body(Body::empty())
            .unwrap()
    };
    let (service, url) = ScriptedHttpService::start(moved).await;
    assert_eq!(
        outcome_name(&send(&provider(&url, &json!({}))).await),
        "refused"
    );
    assert_eq!(service.requests().len(), 1);
}

#[tokio::test]
async fn a_body_that_is_too_long_or_not_json_is_ignored() {
    let more = json!({ "responses": { "message_id": "/id" } });
    let long = format!(r#"{{"id":"1","rest":"{}"}}"#, "x".repeat(100_000));
    for (body, id) in [
        (r#"{"id":"1"}"#.to_owned(), Some("1")),
        (long, None),
        ("<html>".to_owned(), None),
    ] {
        let (_service, url) = ScriptedHttpService::start(move |_| reply(200, body.clone())).await;
        assert_eq!(
            send(&provider(&url, &more)).await,
            SendOutcome::Accepted(id.map(Into::into))
        );
    }
}
