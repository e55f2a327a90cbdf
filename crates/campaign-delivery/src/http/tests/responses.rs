//! Tests of responses: status codes, throttling, redirects, invalid bodies and secrets in bodies.

use axum::body::Body;
use axum::http::Response;
use onward_campaign_core::SendOutcome;
use serde_json::json;

use super::{Heard, Service, kind, provider, reply, send, send_batch};

#[tokio::test]
async fn statuses_mean_what_http_says_or_what_the_document_says() {
    let status = |heard: &Heard| heard.headers["x-status"].parse().unwrap();
    let (_service, url) = Service::start(move |heard| reply(status(heard), "")).await;
    for (status, plain, mapped) in [
        (200, "accepted", "accepted"),
        (204, "accepted", "accepted"),
        (302, "refused", "refused"),
        (400, "refused", "refused"),
        (404, "refused", "refused"),
        (408, "unknown", "unknown"),
        (409, "refused", "accepted"),
        (425, "busy", "busy"),
        (429, "busy", "busy"),
        (500, "unknown", "later"),
        (502, "unknown", "later"),
        (503, "unknown", "busy"),
        (504, "unknown", "unknown"),
        (401, "busy", "refused"),
        (403, "busy", "busy"),
        (407, "busy", "busy"),
    ] {
        let header = json!({ "x-status": status.to_string() });
        let answer = send(&provider(&url, &json!({ "headers": header }))).await;
        assert_eq!(kind(&answer), plain, "{status}: {answer:?}");
        let more = json!({
            "headers": header, "idempotency_header": "Key", "takes_keys_once": true,
            "answers": { "duplicate": [409], "later": [500, 502], "busy": [503], "refused": [401] },
        });
        let answer = send(&provider(&url, &more)).await;
        assert_eq!(kind(&answer), mapped, "{status}: {answer:?}");
    }
}

#[tokio::test]
async fn a_busy_service_says_for_how_long() {
    let later = |after: &'static str| {
        move |_: &Heard| {
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
    let more = json!({ "answers": { "error": "/error/message" } });
    for (after, ms) in [
        ("7", Some(7_000)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60_000)),
        ("soon", None),
    ] {
        let (_service, url) = Service::start(later(after)).await;
        let answer = send(&provider(&url, &more)).await;
        assert_eq!(
            answer,
            SendOutcome::Throttled("the service answered 429: slow down".into(), ms)
        );
    }
}

#[tokio::test]
async fn a_service_that_repeats_our_secret_is_not_quoted() {
    let echo = json!({ "why": "bad login shop:hunter2 (Basic c2hvcDpodW50ZXIy)", "id": "hunter2", "state": "no hunter2",
        "results": [{ "ref": "ab12", "state": "no hunter2", "why": "hunter2" }] });
    let status = |heard: &Heard| heard.headers["x-status"].parse().unwrap();
    let (_service, url) = Service::start(move |heard| reply(status(heard), echo.to_string())).await;
    let basic = json!({ "basic": { "user": "shop", "password": { "secret": "API" } } });
    for (status, auth) in [
        (200, &basic),
        (401, &basic),
        (400, &json!({ "bearer": { "secret": "API" } })),
    ] {
        let headers = json!({ "x-status": status.to_string() });
        let more = json!({ "headers": headers, "auth": auth, "answers": { "error": "/why", "message_id": "/id" } });
        let said = format!("{:?}", send(&provider(&url, &more)).await);
        let is_covered =
            !said.contains("hunter2") && (status == 400 || !said.contains("c2hvcDpodW50ZXIy"));
        assert!(is_covered && said.contains("(secret)"), "{said}");
    }
    let entries = json!({ "max": 1, "items": "/results", "id": "/ref", "status": "/state", "error": "/why",
        "refused": ["no hunter2"] });
    let look = json!({ "url": format!("{url}/x"), "found": "/id", "status": "/state", "refused": ["no hunter2"] });
    let more = json!({ "headers": { "x-status": "200" }, "auth": basic, "batch": entries, "look": look, "body": "[]" });
    let said = send_batch(&provider(&url, &more), &["ab12"]).await;
    assert_eq!(
        said,
        [SendOutcome::Refused(
            "the service said of it: no (secret): (secret)".into()
        )]
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let moved = |_: &Heard| {
        Response::builder()
            .status(307)
            .header("location", "/elsewhere")
            .body(Body::empty())
            .unwrap()
    };
    let (service, url) = Service::start(moved).await;
    assert_eq!(kind(&send(&provider(&url, &json!({}))).await), "refused");
    assert_eq!(service.heard().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_is_no_json_counts_by_its_status() {
    let more = json!({ "answers": { "message_id": "/id" } });
    let long = format!(r#"{{"id":"1","rest":"{}"}}"#, "x".repeat(100_000));
    for (body, id) in [
        (r#"{"id":"1"}"#.to_owned(), Some("1")),
        (long, None),
        ("<html>".to_owned(), None),
    ] {
        let (_service, url) = Service::start(move |_| reply(200, body.clone())).await;
        assert_eq!(
            send(&provider(&url, &more)).await,
            SendOutcome::Accepted(id.map(Into::into))
        );
    }
}
