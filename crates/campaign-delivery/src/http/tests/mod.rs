//! Tests of the HTTP provider against a service with scripted responses. This file holds the
//! fixture.

mod batches;
mod connection_failures;
mod document_errors;
mod requests;
mod responses;
mod status_lookup;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use onward_campaign_core::{RenderedMessage, SendOutcome};
use serde_json::{Value, json};

use super::{HttpProvider, HttpSpec};
use crate::outgoing_item::OutgoingItem;
use crate::secret::SecretSource;

struct HttpTestSecrets;

impl SecretSource for HttpTestSecrets {
    fn lookup_secret(&self, name: &str) -> Option<String> {
        (name == "API").then(|| "hunter2".to_owned())
    }
}

/// A request as the service received it.
#[derive(Debug, Clone)]
struct RecordedRequest {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

type Script = dyn Fn(&RecordedRequest) -> Response<Body> + Send + Sync;

/// A service with scripted responses that records its requests.
struct ScriptedHttpService {
    script: Box<Script>,
    requests: Mutex<Vec<RecordedRequest>>,
}

impl ScriptedHttpService {
    /// Starts a service with scripted responses, and returns it with its URL.
    async fn start(
        script: impl Fn(&RecordedRequest) -> Response<Body> + Send + Sync + 'static,
    ) -> (Arc<Self>, String) {
        let service = Arc::new(Self {
            script: Box::new(script),
            requests: Mutex::default(),
        });
        let router = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&service));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (service, url)
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    State(service): State<Arc<ScriptedHttpService>>,
    request: Request<Body>,
) -> Response<Body> {
    let line = format!("{} {}", request.method(), request.uri());
    let text =
        |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20)
        .await
        .unwrap();
    let recorded = RecordedRequest {
        line,
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    service.requests.lock().unwrap().push(recorded.clone());
    (service.script)(&recorded)
}

fn reply(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(body.into())
        .unwrap()
}

fn spec(url: &str, more: &Value) -> Result<HttpSpec, serde_json::Error> {
    let mut spec = json!({ "url": format!("{url}/send"), "body": r#"{"to": {{ to }}, "text": {{ text|tojson }}}"# });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec)
}

fn provider(url: &str, more: &Value) -> HttpProvider {
    spec(url, more)
        .unwrap()
        .build_provider("api", &HttpTestSecrets)
        .unwrap()
}

fn message(text: &str) -> RenderedMessage {
    RenderedMessage {
        parts: vec![
            ("text".to_owned(), text.to_owned()),
            ("to".to_owned(), "overridden".to_owned()),
        ],
    }
}

async fn send(http: &HttpProvider) -> SendOutcome {
    let message = message("Say \"hi\"");
    http.send_one(&OutgoingItem {
        item_id: "j.0",
        key: "ab12",
        to: "+49 30 1",
        recipient: "ada",
        message: &message,
    })
    .await
}

fn outcome_name(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Accepted(_) => "accepted",
        SendOutcome::Refused(_) => "refused",
        SendOutcome::Deferred(_) => "deferred",
        SendOutcome::Unreachable(_) => "unreachable",
        SendOutcome::Throttled(..) => "throttled",
        SendOutcome::Unknown(_) => "unknown",
        SendOutcome::InvalidMessage(_) => "invalid",
    }
}

fn batch() -> Value {
    let body = r#"{"messages": [{% for item in items %}{"ref": {{ item.key }}, "to": {{ item.to }}}{% if not loop.last %},{% endif %}{% endfor %}]}"#;
    let batch = json!({
        "max_items": 10, "items": "/results", "id": "/ref", "status": "/state", "message_id": "/id", "error": "/reason",
        "accepted": ["queued"], "rejected": ["bounced"], "deferred": ["throttled"],
    });
    json!({ "body": body, "batch": batch, "idempotent": true })
}

async fn send_batch(http: &HttpProvider, keys: &[&str]) -> Vec<SendOutcome> {
    let message = message("Hi");
    let item_ids: Vec<String> = keys.iter().map(|key| format!("j.{key}")).collect();
    let items: Vec<OutgoingItem<'_>> = keys
        .iter()
        .zip(&item_ids)
        .map(|(key, item_id)| OutgoingItem {
            item_id,
            key,
            to: "+49",
            recipient: "ada",
            message: &message,
        })
        .collect();
    http.send_items(&items).await
}
