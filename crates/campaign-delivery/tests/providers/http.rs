//! A campaign through a service over HTTP that fails as such services do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::world::{World, expect};

/// What a service has taken, by key, and how often it was called for whom.
#[derive(Default)]
struct Service {
    taken: Mutex<BTreeMap<String, String>>,
    calls: Mutex<BTreeMap<String, u32>>,
}

async fn start() -> (Arc<Service>, String) {
    let service = Arc::new(Service::default());
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

impl Service {
    /// Counts a call, and takes the item unless it is for somebody who is not taken.
    fn take(&self, key: &str, to: &str) -> u16 {
        let calls = {
            let mut calls = self.calls.lock().unwrap();
            let count = calls.entry(to.to_owned()).or_insert(0);
            *count += 1;
            *count
        };
        match (to.split('@').next().unwrap(), calls) {
            ("refused", _) => 422,
            ("busy", 1) => 429,
            ("later", 1) => 500,
            (name, _) => {
                self.taken
                    .lock()
                    .unwrap()
                    .insert(key.to_owned(), to.to_owned());
                // It is taken, but the answer gets lost on its way.
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
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let key = headers["idempotency-key"].to_str().unwrap();
    StatusCode::from_u16(service.take(key, body["to"].as_str().unwrap())).unwrap()
}

async fn batch(State(service): State<Arc<Service>>, Json(body): Json<Value>) -> Json<Value> {
    let result = |item: &Value| {
        let status = service.take(item["key"].as_str().unwrap(), item["to"].as_str().unwrap());
        json!({ "key": item["key"], "status": status })
    };
    let items = body.as_array().unwrap();
    // It does not speak of the last.
    Json(json!({ "results": items[..items.len() - 1].iter().map(result).collect::<Vec<_>>() }))
}

async fn key(
    State(service): State<Arc<Service>>,
    axum::extract::Path(key): axum::extract::Path<String>,
) -> (StatusCode, Json<Value>) {
    match service.taken.lock().unwrap().get(&key) {
        Some(to) => (StatusCode::OK, Json(json!({ "id": format!("m-{to}") }))),
        None => (StatusCode::NOT_FOUND, Json(Value::Null)),
    }
}

const PEOPLE: [(&str, &str); 5] = [
    ("ada", "ada@example.org"),
    ("refused", "refused@example.org"),
    ("busy", "busy@example.org"),
    ("later", "later@example.org"),
    ("lost", "lost@example.org"),
];

fn spec(url: &str, more: &Value) -> Value {
    let mut spec = json!({
        "url": format!("{url}/send"),
        "body": r#"{"to": {{ to }}, "text": {{ text }}}"#,
        "idempotency_header": "Idempotency-Key",
        "answers": { "later": [500] },
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "http": spec })
}

#[tokio::test]
async fn what_a_service_may_have_taken_stays_in_doubt() {
    let (service, url) = start().await;
    let items = World::new(spec(&url, &json!({}))).send(&PEOPLE).await;
    let served = [
        ("ada", "sent"),
        ("busy", "sent"),
        ("later", "sent"),
        ("lost", "in doubt"),
    ];
    assert_eq!(
        items,
        expect(&[&served[..], &[("refused", "failed refused")]].concat())
    );
    let calls = service.calls.lock().unwrap().clone();
    assert_eq!(
        calls.values().copied().collect::<Vec<_>>(),
        [1, 2, 2, 1, 1],
        "{calls:?}"
    );
}

#[tokio::test]
async fn a_service_that_takes_keys_once_is_called_again_and_one_that_can_be_asked_is_asked() {
    let served = [
        ("ada", "sent"),
        ("busy", "sent"),
        ("later", "sent"),
        ("lost", "sent"),
    ];
    let expected = expect(&[&served[..], &[("refused", "failed refused")]].concat());
    let (service, url) = start().await;
    let world = World::new(spec(&url, &json!({ "takes_keys_once": true })));
    assert_eq!(world.send_until_sent(&PEOPLE).await, expected);
    assert_eq!(service.calls.lock().unwrap()["lost@example.org"], 2);
    let (service, url) = start().await;
    let look = json!({ "url": format!("{url}/keys/{{{{ key }}}}"), "nothing": [404], "message_id": "/id" });
    let world = World::new(spec(
        &url,
        &json!({ "look": look, "terms": { "looks_after_ms": 1 } }),
    ));
    assert_eq!(world.send_until_sent(&PEOPLE).await, expected);
    assert_eq!(service.calls.lock().unwrap()["lost@example.org"], 1);
    let rows = world.rows().await;
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
async fn a_batch_that_half_failed_is_settled_item_by_item() {
    let (service, url) = start().await;
    let body = "[{% for item in items %}{\"key\": {{ item.key }}, \"to\": {{ item.to }}}{% if not loop.last %},{% endif %}{% endfor %}]";
    let batch = json!({ "max": 10, "items": "/results", "id": "/key", "status": "/status" });
    let more = json!({ "url": format!("{url}/batch"), "body": body, "batch": batch });
    let mut spec = spec(&url, &more);
    spec["http"]
        .as_object_mut()
        .unwrap()
        .remove("idempotency_header");
    let people = [
        ("ada", "ada@example.org"),
        ("refused", "refused@example.org"),
        ("zoe", "zoe@example.org"),
    ];
    let items = World::new(spec).send(&people).await;
    assert_eq!(
        items,
        expect(&[
            ("ada", "sent"),
            ("refused", "failed refused"),
            ("zoe", "in doubt")
        ])
    );
    assert_eq!(service.calls.lock().unwrap().len(), 2);
}
