//! Requests of workflows and tasks to a local server: allowed hosts, headers, and responses.

use std::sync::{Arc, Mutex};

use onward_embed::{Engine, ExecutionError, ExecutionId, HostRule};
use onward_journal::{ErrorKind, Event};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::world::{built, cache};

/// The workflows that send a request: directly, and through a task.
const BOTH: [&str; 2] = ["http_get", "http_by_task"];

/// A server on the loopback interface. The path sets how often it is busy before it answers, and
/// the status of the answer.
struct Server {
    address: String,
    /// The idempotency key of each request.
    keys: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let keys = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&keys);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                answer(stream, &noted).await;
            }
        });
        Self { address, keys }
    }

    /// A URL that is busy this number of times, and then answers with this status.
    fn url(&self, busy: usize, status: u16) -> String {
        format!("http://{}/{busy}/{status}", self.address)
    }

    fn keys(&self) -> Vec<Option<String>> {
        self.keys.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, keys: &Mutex<Vec<Option<String>>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            return;
        }
    }
    let request = String::from_utf8(request).unwrap();
    let key = request.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("idempotency-key")
            .then(|| value.to_owned())
    });
    let path: Vec<&str> = request
        .split_whitespace()
        .nth(1)
        .unwrap()
        .split('/')
        .collect();
    let seen = {
        let mut keys = keys.lock().unwrap();
        keys.push(key);
        keys.len()
    };
    let status = if seen <= path[1].parse().unwrap() {
        "503"
    } else {
        path[2]
    };
    let response =
        format!("HTTP/1.1 {status} So\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody");
    stream.write_all(response.as_bytes()).await.unwrap();
}

/// An engine with a component that may send requests to `hosts`, in a process that allows `rules`.
struct Place {
    engine: Engine,
    _folder: TempDir,
}

impl Place {
    async fn new(rules: Vec<HostRule>, hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let engine = Engine::builder(&url)
            .with_cache_folder(Some(cache()))
            .allow_hosts(rules)
            .open()
            .await
            .unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        engine
            .deploy_component(&built("journals.wasm"), &hosts)
            .await
            .unwrap();
        Self {
            engine,
            _folder: folder,
        }
    }

    /// An engine and a component that both allow requests to `server`.
    async fn open_to(server: &Server) -> Self {
        Self::new(vec![private_rule(&server.address)], &[&server.address]).await
    }

    async fn run(&self, function: &str, url: &str) -> (ExecutionId, Result<Value, ExecutionError>) {
        let id = self
            .engine
            .start_execution(function, &url, None)
            .await
            .unwrap()
            .execution;
        (id, self.engine.wait_for_output(id).await.unwrap())
    }

    async fn events(&self, id: ExecutionId) -> Vec<Event> {
        self.engine
            .client()
            .read_journal(id)
            .await
            .unwrap()
            .into_iter()
            .map(|it| it.event)
            .collect()
    }

    /// The kinds of failures that the journal has: of attempts that were followed by another, of
    /// the request, of the whole.
    async fn failures(&self, id: ExecutionId) -> (Vec<String>, Option<String>, Option<String>) {
        let (mut retried, mut request, mut whole) = (Vec::new(), None, None);
        for event in self.events(id).await {
            match event {
                Event::InvokeRetrying { error, .. } => retried.push(error.kind.to_string()),
                Event::InvokeCompleted {
                    result: Err(error), ..
                } => request = Some(error.kind.to_string()),
                Event::ExecutionFailed { error } => whole = Some(error.kind.to_string()),
                _ => {}
            }
        }
        (retried, request, whole)
    }
}

/// A rule that allows public addresses only.
fn public_rule(pattern: &str) -> HostRule {
    HostRule {
        pattern: pattern.parse().unwrap(),
        private_networks: false,
    }
}

/// A rule that allows private addresses too.
fn private_rule(pattern: &str) -> HostRule {
    HostRule {
        private_networks: true,
        ..public_rule(pattern)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_must_be_allowed_by_component_and_process_and_private_networks_explicitly() {
    let server = Server::start().await;
    let address = &*server.address;
    let denied = Some("http_denied".to_owned());
    for (rules, hosts, allowed_by) in [
        (vec![], &[][..], "neither"),
        (vec![private_rule(address)], &[], "the process alone"),
        (vec![], &[address], "the component alone"),
        (
            vec![public_rule(address)],
            &[address],
            "both, but not within a network",
        ),
        (
            vec![private_rule("127.0.0.1:1")],
            &[address],
            "another port",
        ),
    ] {
        let place = Place::new(rules, hosts).await;
        for function in BOTH {
            let (id, result) = place.run(function, &server.url(0, 200)).await;
            let error = result.unwrap_err();
            assert_eq!(
                error.kind,
                "http_denied".parse::<ErrorKind>().unwrap(),
                "{function}, {allowed_by}: {error}"
            );
            let expected = (Vec::new(), denied.clone(), denied.clone());
            assert_eq!(
                place.failures(id).await,
                expected,
                "{function}, {allowed_by}: refused permanently"
            );
        }
        place.engine.stop().await.unwrap();
    }
    assert_eq!(server.keys(), [], "nothing has reached the server");
    let place = Place::open_to(&server).await;
    for function in BOTH {
        let (_, result) = place.run(function, &server.url(0, 200)).await;
        let answer = result.unwrap();
        assert_eq!(
            (&answer["status"], &answer["body"]),
            (&json!(200), &json!("body")),
            "{function}"
        );
    }
    assert_eq!(server.keys().len(), BOTH.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_has_the_same_key() {
    for (function, kind) in [("http_get", "http_status"), ("http_by_task", "http_503")] {
        let server = Server::start().await;
        let place = Place::open_to(&server).await;
        let (id, result) = place.run(function, &server.url(2, 200)).await;
        assert_eq!(result.unwrap()["status"], 200, "{function}");
        let key = Some(id.child_promise(0).to_string());
        assert_eq!(server.keys(), [key.clone(), key.clone(), key], "{function}");
        let (retried, request, whole) = place.failures(id).await;
        assert_eq!(
            (retried, request, whole),
            (vec![kind.to_owned(); 2], None, None),
            "{function}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_service_fails_the_workflow_after_all_attempts() {
    for (function, kind) in [("http_get", "http_status"), ("http_by_task", "http_503")] {
        let server = Server::start().await;
        let place = Place::open_to(&server).await;
        let (id, result) = place.run(function, &server.url(100, 200)).await;
        assert_eq!(result.unwrap_err().kind.as_str(), kind, "{function}");
        let kind = kind.to_owned();
        let expected = (vec![kind.clone(); 2], Some(kind.clone()), Some(kind));
        assert_eq!(
            (place.failures(id).await, server.keys().len()),
            (expected, 3),
            "{function}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_error_is_a_response() {
    let server = Server::start().await;
    let place = Place::open_to(&server).await;
    for (sent, function) in BOTH.into_iter().enumerate() {
        for (more, status) in [400, 404, 418].into_iter().enumerate() {
            let (id, result) = place.run(function, &server.url(0, status)).await;
            assert_eq!(result.unwrap()["status"], status, "{function}");
            assert_eq!(
                server.keys().len(),
                3 * sent + more + 1,
                "{function}: it is not sent again"
            );
            assert_eq!(
                place.failures(id).await,
                (Vec::new(), None, None),
                "{function}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_retryable() {
    // The port belongs to a socket that does not listen, so no other process gets it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let place = Place::new(vec![private_rule(&address)], &[&address]).await;
    let failed = "http_failed".to_owned();
    for function in BOTH {
        let (id, result) = place.run(function, &format!("http://{address}/")).await;
        assert_eq!(result.unwrap_err().kind.as_str(), failed, "{function}");
        let expected = (
            vec![failed.clone(); 2],
            Some(failed.clone()),
            Some(failed.clone()),
        );
        assert_eq!(place.failures(id).await, expected, "{function}");
    }
}
