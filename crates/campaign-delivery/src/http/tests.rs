//! Tests of the HTTP provider's outcomes, against a service with scripted responses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use onward_campaign_core::{LookupOutcome, RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Provider as _;
use serde_json::{Value, json};

use super::{HttpProvider, HttpSpec};
use crate::outgoing_item::OutgoingItem;
use crate::secret::SecretSource;

struct Known;

impl SecretSource for Known {
    fn lookup_secret(&self, name: &str) -> Option<String> {
        (name == "API").then(|| "hunter2".to_owned())
    }
}

/// A request as the service received it.
#[derive(Debug, Clone)]
struct Heard {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

type Script = dyn Fn(&Heard) -> Response<Body> + Send + Sync;

struct Service {
    script: Box<Script>,
    heard: Mutex<Vec<Heard>>,
}

impl Service {
    /// Starts a service with scripted responses, and returns it with its URL.
    async fn start(
        script: impl Fn(&Heard) -> Response<Body> + Send + Sync + 'static,
    ) -> (Arc<Self>, String) {
        let service = Arc::new(Self {
            script: Box::new(script),
            heard: Mutex::default(),
        });
        let router = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&service));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (service, url)
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

async fn serve(State(service): State<Arc<Service>>, request: Request<Body>) -> Response<Body> {
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
    let heard = Heard {
        line,
        headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    service.heard.lock().unwrap().push(heard.clone());
    (service.script)(&heard)
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
        .build_provider("api", &Known)
        .unwrap()
}

fn message(text: &str) -> RenderedMessage {
    RenderedMessage {
        parts: vec![
            ("text".to_owned(), text.to_owned()),
            ("to".to_owned(), "no part".to_owned()),
        ],
    }
}

async fn send(http: &HttpProvider) -> SendOutcome {
    let message = message("Say \"hi\"");
    http.send_one(&OutgoingItem {
        item: "j.0",
        key: "ab12",
        to: "+49 30 1",
        recipient: "ada",
        message: &message,
    })
    .await
}

fn kind(answer: &SendOutcome) -> &'static str {
    match answer {
        SendOutcome::Accepted(_) => "accepted",
        SendOutcome::Refused(_) => "refused",
        SendOutcome::Deferred(_) => "later",
        SendOutcome::Throttled(..) => "busy",
        SendOutcome::Unknown(_) => "unknown",
        SendOutcome::InvalidMessage(_) => "unfit",
    }
}

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

/// Starts a service that reads a request and then hangs or closes the connection; returns its URL.
async fn rude(hangs: bool) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = [0; 4_096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut heard).await;
                if hangs {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn nobody_knows_what_became_of_a_request_that_was_sent_and_not_answered() {
    let answer = send(&provider(&rude(false).await, &json!({}))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
    let answer = send(&provider(&rude(true).await, &json!({ "timeout_ms": 300 }))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
    assert!(format!("{answer:?}").contains("in time"), "{answer:?}");
}

#[tokio::test]
async fn a_service_that_cannot_be_connected_to_has_taken_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let answer = send(&provider(&url, &json!({}))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
    let host = url.trim_start_matches("http://");
    assert!(
        format!("{answer:?}").contains(&format!("could not connect to {host}: ")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_service_that_never_shakes_hands_has_taken_nothing() {
    let url = rude(true).await.replace("http://", "https://");
    let answer = send(&provider(&url, &json!({ "timeout_ms": 600 }))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
    let url = rude(false).await.replace("http://", "https://");
    let answer = send(&provider(&url, &json!({}))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
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

fn batch() -> Value {
    let body = r#"{"messages": [{% for item in items %}{"ref": {{ item.key }}, "to": {{ item.to }}}{% if not loop.last %},{% endif %}{% endfor %}]}"#;
    let batch = json!({
        "max": 10, "items": "/results", "id": "/ref", "status": "/state", "message_id": "/id", "error": "/why",
        "accepted": ["queued"], "refused": ["bounced"], "later": ["throttled"],
    });
    json!({ "body": body, "batch": batch, "takes_keys_once": true })
}

async fn send_batch(http: &HttpProvider, keys: &[&str]) -> Vec<SendOutcome> {
    let message = message("Hi");
    let items: Vec<String> = keys.iter().map(|key| format!("j.{key}")).collect();
    let parcels: Vec<OutgoingItem<'_>> = keys
        .iter()
        .zip(&items)
        .map(|(key, item)| OutgoingItem {
            item,
            key,
            to: "+49",
            recipient: "ada",
            message: &message,
        })
        .collect();
    http.send_items(&parcels).await
}

#[tokio::test]
async fn a_batch_is_answered_item_by_item() {
    let results = json!({ "results": [
        { "ref": "b", "state": "bounced", "why": "no such number" },
        { "ref": "a", "state": "queued", "id": "m-1" },
        { "ref": "j.c", "state": "throttled" },
        { "ref": "d", "state": "odd" },
        { "ref": "e", "state": 202 },
        { "ref": "f", "state": 400 },
        { "ref": "g" },
        { "ref": "i", "state": "queued" },
        { "ref": "i", "state": "bounced" },
        { "ref": "stranger", "state": "queued" },
    ] });
    let (service, url) = Service::start(move |_| reply(200, results.to_string())).await;
    let http = provider(&url, &batch());
    let answers = send_batch(&http, &["a", "b", "c", "d", "e", "f", "g", "h", "i"]).await;
    assert_eq!(answers[0], SendOutcome::Accepted(Some("m-1".into())));
    assert_eq!(
        answers[1],
        SendOutcome::Refused("the service said of it: bounced: no such number".into())
    );
    let kinds: Vec<&str> = answers[2..].iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "later", "unknown", "accepted", "refused", "unknown", "unknown", "unknown"
        ]
    );
    assert_eq!(service.heard().len(), 1);
    let sent: Value = serde_json::from_str(&service.heard()[0].body).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 9);
    assert_eq!(http.capabilities().max_batch, 10);
}

#[tokio::test]
async fn a_batch_that_is_refused_whole_or_not_understood_is_answered_for_all() {
    for (status, body, expected) in [
        (200, "nonsense", "unknown"),
        (200, r#"{"results":{}}"#, "unknown"),
        (500, "", "unknown"),
        (429, "", "busy"),
        (400, "", "refused"),
    ] {
        let (_service, url) = Service::start(move |_| reply(status, body)).await;
        let answers = send_batch(&provider(&url, &batch()), &["a", "b"]).await;
        assert!(
            answers.len() == 2 && answers.iter().all(|answer| kind(answer) == expected),
            "{status} {answers:?}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_made_does_not_spoil_its_batch() {
    let (service, url) =
        Service::start(|_| reply(200, r#"{"results":[{"ref":"a","state":"queued"}]}"#)).await;
    let http = provider(&url, &batch());
    let (good, bad) = (message("Hi"), RenderedMessage::default());
    let parcel = |key, message| OutgoingItem {
        item: key,
        key,
        to: "+49",
        recipient: "ada",
        message,
    };
    let mut more = batch();
    more["body"] = json!(
        more["body"]
            .as_str()
            .unwrap()
            .replace("item.to", "item.text")
    );
    let answers = provider(&url, &more)
        .send_items(&[parcel("a", &good), parcel("b", &bad)])
        .await;
    assert_eq!(
        answers.iter().map(kind).collect::<Vec<_>>(),
        ["accepted", "unfit"]
    );
    assert_eq!(service.heard().len(), 1);
    assert!(http.send_items(&[]).await.is_empty());
}

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
