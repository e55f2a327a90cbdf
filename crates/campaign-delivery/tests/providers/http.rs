//! Campaigns through an HTTP service with the usual failures: rejected items, throttling, errors,
//! and responses that are lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::fixture::{ProviderFixture, statuses};

/// A service that records the accepted items by key, and the number of calls per recipient.
#[derive(Default)]
struct FlakyHttpService {
    accepted: Mutex<BTreeMap<String, String>>,
    calls: Mutex<BTreeMap<String, u32>>,
}

async fn start() -> (Arc<FlakyHttpService>, String) {
    let service = Arc::new(FlakyHttpService::default());
    let router = Router::new()
        .route("/send", post(send))
        .route("/batch", post(batch))
        .route("/keys/{key}", get(key))
        .with_state(Arc::clone(&service));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (service, url)
}

impl FlakyHttpService {
    /// Counts a call, and accepts the item unless the name of the recipient stands for a failure.
    fn receive(&self, key: &str, to: &str) -> u16 {
        let calls = {
            let mut calls = self.calls.lock().unwrap();
            let count = calls.entry(to.to_owned()).or_insert(0);
            *count += 1;
            *count
        };
        match (to.split('@').next().unwrap(), calls) {
            ("refused", _) => 422,
            ("throttled", 1) => 429,
            ("deferred", 1) => 500,
            (name, _) => {
                self.accepted
                    .lock()
                    .unwrap()
                    .insert(key.to_owned(), to.to_owned());
                // The item is accepted, but the response is lost.
                if name == "lost" && calls == 1 {
                    502
                } else {
                    200
                }
            }
        }
    }
}

async fn send(
    State(service): State<Arc<FlakyHttpService>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let key = headers["idempotency-key"].to_str().unwrap();
    StatusCode::from_u16(service.receive(key, body["to"].as_str().unwrap())).unwrap()
}

async fn batch(
    State(service): State<Arc<FlakyHttpService>>,
    Json(body): Json<Value>,
) -> Json<Value> {
    let result = |item: &Value| {
        let status = service.receive(item["key"].as_str().unwrap(), item["to"].as_str().unwrap());
        json!({ "key": item["key"], "status": status })
    };
    let items = body.as_array().unwrap();
    // The response has no entry for the last item.
    Json(json!({ "results": items[..items.len() - 1].iter().map(result).collect::<Vec<_>>() }))
}

async fn key(
    State(service): State<Arc<FlakyHttpService>>,
    axum::extract::Path(key): axum::extract::Path<String>,
) -> (StatusCode, Json<Value>) {
    match service.accepted.lock().unwrap().get(&key) {
        Some(to) => (StatusCode::OK, Json(json!({ "id": format!("m-{to}") }))),
        None => (StatusCode::NOT_FOUND, Json(Value::Null)),
    }
}

const RECIPIENTS: [(&str, &str); 5] = [
    ("ada", "ada@example.org"),
    ("refused", "refused@example.org"),
    ("throttled", "throttled@example.org"),
    ("deferred", "deferred@example.org"),
    ("lost", "lost@example.org"),
];

fn spec(url: &str, more: &Value) -> Value {
    let mut spec = json!({
        "url": format!("{url}/send"),
        "body": r#"{"to": {{ to }}, "text": {{ text }}}"#,
        "idempotency_header": "Idempotency-Key",
        "responses": { "deferred": [500] },
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "http": spec })
}

#[tokio::test]
async fn an_item_that_the_service_may_have_accepted_stays_in_doubt() {
    let (service, url) = start().await;
    let items = ProviderFixture::new(spec(&url, &json!({})))
        .send(&RECIPIENTS)
        .await;
    let sent = [
        ("ada", "sent"),
        ("throttled", "sent"),
        ("deferred", "sent"),
        ("lost", "in doubt"),
    ];
    assert_eq!(
        items,
        statuses(&[&sent[..], &[("refused", "failed refused")]].concat())
    );
    let calls = service.calls.lock().unwrap().clone();
    assert_eq!(
        calls.values().copied().collect::<Vec<_>>(),
        [1, 2, 1, 1, 2],
        "{calls:?}"
    );
}

#[tokio::test]
async fn an_item_in_doubt_is_resent_if_idempotent_and_looked_up_if_the_service_can() {
    let sent = [
        ("ada", "sent"),
        ("throttled", "sent"),
        ("deferred", "sent"),
        ("lost", "sent"),
    ];
    let expected = statuses(&[&sent[..], &[("refused", "failed refused")]].concat());
    let (service, url) = start().await;
    let fixture = ProviderFixture::new(spec(&url, &json!({ "idempotent": true })));
    assert_eq!(fixture.send_until_sent(&RECIPIENTS).await, expected);
    assert_eq!(service.calls.lock().unwrap()["lost@example.org"], 2);
    let (service, url) = start().await;
    let lookup = json!({ "url": format!("{url}/keys/{{{{ key }}}}"), "not_found": [404], "message_id": "/id" });
    let fixture = ProviderFixture::new(spec(
        &url,
        &json!({ "status_lookup": lookup, "policy": { "lookup_after_ms": 1 } }),
    ));
    assert_eq!(fixture.send_until_sent(&RECIPIENTS).await, expected);
    assert_eq!(service.calls.lock().unwrap()["lost@example.org"], 1);
    let rows = fixture.item_rows().await;
    let lost = rows
        .iter()
        .find(|row| &*row.recipient_id == "lost")
        .unwrap();
    assert_eq!(
        lost.provider_message_id.as_deref(),
        Some("m-lost@example.org")
    );
}

#[tokio::test]
async fn a_partly_failed_batch_is_settled_per_item() {
    let (service, url) = start().await;
    let body = "[{% for item in items %}{\"key\": {{ item.key }}, \"to\": {{ item.to }}}{% if not loop.last %},{% endif %}{% endfor %}]";
    let batch = json!({ "max_items": 10, "items": "/results", "id": "/key", "status": "/status" });
    let more = json!({ "url": format!("{url}/batch"), "body": body, "batch": batch });
    let mut spec = spec(&url, &more);
    spec["http"]
        .as_object_mut()
        .unwrap()
        .remove("idempotency_header");
    let recipients = [
        ("ada", "ada@example.org"),
        ("refused", "refused@example.org"),
        ("zoe", "zoe@example.org"),
    ];
    let items = ProviderFixture::new(spec).send(&recipients).await;
    assert_eq!(
        items,
        statuses(&[
            ("ada", "sent"),
            ("refused", "failed refused"),
            ("zoe", "in doubt")
        ])
    );
    assert_eq!(service.calls.lock().unwrap().len(), 2);
}
