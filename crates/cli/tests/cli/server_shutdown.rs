//! Graceful shutdown of a server, immediate shutdown, and takeover after a kill.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::http_server::{Server, create_token};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

#[test]
fn a_stopped_server_releases_its_shards() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let mut server = Server::start(&fixture, &[]);
    let waiting = server.send_request(
        "POST /v1/executions",
        &admin,
        r#"{"function":"blocking_signal","input":{"order":1}}"#,
    );
    assert_eq!(waiting.status, 201, "{}", waiting.body);
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let why = fixture.run(&["why", waiting.json()["execution"].as_str().unwrap()]);
    assert!(
        text(&why.stdout).contains("owner      none\n"),
        "{}",
        text(&why.stdout)
    );
}

/// An HTTP service that a workflow calls; the test sends the response.
struct SlowService {
    address: String,
    requests: mpsc::Receiver<TcpStream>,
}

impl SlowService {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = mpsc::channel();
        std::thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| drop(sender.send(stream)))
        });
        Self { address, requests }
    }

    /// Waits for a request.
    fn wait_for_request(&self) -> TcpStream {
        self.requests.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

/// Starts a server and a workflow with a request in progress.
fn start_with_request_in_progress(
    fixture: &WorkflowStoreFixture,
    slow: &SlowService,
    admin: &str,
) -> (Server, String, TcpStream) {
    let built = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/workflows/built/journals.wasm"
    );
    let deployed = fixture.run(&["deploy", built, "--allow-host", &slow.address]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    let server = Server::start(fixture, &["--allow-private-host", &slow.address]);
    let body =
        json!({ "function": "http_get", "input": format!("http://{}/", slow.address) }).to_string();
    let started = server.send_request("POST /v1/executions", admin, &body);
    assert_eq!(started.status, 201, "{}", started.body);
    let id = started.json()["execution"].as_str().unwrap().to_owned();
    (server, id, slow.wait_for_request())
}

/// Signals a server to stop, and waits until it is no longer ready.
fn start_shutdown(server: &Server) {
    server.signal("TERM");
    while server.send_request("GET /readyz", "", "").status != 503 {}
}

#[test]
fn a_draining_server_reports_it_and_completes_running_tasks() {
    let (fixture, slow) = (WorkflowStoreFixture::sqlite(), SlowService::start());
    let admin = create_token(&fixture, "admin", &[]);
    let (mut server, id, mut request) = start_with_request_in_progress(&fixture, &slow, &admin);
    start_shutdown(&server);
    assert_eq!(
        server.send_request("GET /readyz", "", "").code(),
        "unavailable"
    );
    assert_eq!(
        server
            .send_request(&format!("GET /v1/executions/{id}"), &admin, "")
            .status,
        200
    );
    let late = server.send_request(
        "POST /v1/executions",
        &admin,
        r#"{"function":"chain","input":{"steps":2},"key":"late"}"#,
    );
    assert_eq!(
        late.status, 201,
        "an execution that is started now is left for another server: {}",
        late.body
    );
    request
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let journal = fixture.run(&["journal", "show", &id]);
    let count = |event: &str| text(&journal.stdout).matches(event).count();
    assert_eq!(
        (count("InvokeStarted"), count("InvokeCompleted")),
        (1, 1),
        "{}",
        text(&journal.stdout)
    );
    let late = fixture.run(&["start", "chain", "{\"steps\":2}", "--key", "late", "--wait"]);
    assert_eq!(text(&late.stdout), "2\n", "{}", text(&late.stderr));
}

#[test]
fn a_second_signal_stops_the_server_immediately() {
    let (fixture, slow) = (WorkflowStoreFixture::sqlite(), SlowService::start());
    let admin = create_token(&fixture, "admin", &[]);
    let (mut server, _, _request) = start_with_request_in_progress(&fixture, &slow, &admin);
    start_shutdown(&server);
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_killed_server_is_replaced_immediately_on_the_same_machine() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let lease = ["--lease-ms", "3600000"];
    let first = Server::start(&fixture, &lease);
    let start = r#"{"function":"blocking_signal","input":{"order":1}}"#;
    let waiting = first
        .send_request("POST /v1/executions", &admin, start)
        .json();
    let id = waiting["execution"].as_str().unwrap();
    let why = format!("GET /v1/executions/{id}/why");
    while !first
        .send_request(&why, &admin, "")
        .body
        .contains("user_approval")
    {}
    // The drop kills the server, an hour before its lease expires.
    drop(first);
    assert!(text(&fixture.run(&["why", id]).stdout).contains("no process works on this store"));
    let second = Server::start(&fixture, &lease);
    let body = r#"{"name":"user_approval","payload":{"approved":true}}"#;
    assert_eq!(
        second
            .send_request(&format!("POST /v1/executions/{id}/signals"), &admin, body)
            .status,
        202
    );
    let result = second
        .send_request(
            &format!("GET /v1/executions/{id}/result?waitMs=25000"),
            &admin,
            "",
        )
        .json();
    assert!(result.get("result").is_some(), "{result}");
    drop(second);
    // A graceful shutdown leaves no file behind.
    let mut third = Server::start(&fixture, &lease);
    third.signal("TERM");
    assert_eq!(third.child.wait().unwrap().code(), Some(0));
    let left = std::fs::read_dir(fixture.folder.path()).unwrap().flatten();
    let left = left
        .filter(|entry| entry.file_name().to_string_lossy().contains("-node-"))
        .count();
    assert_eq!(left, 2, "the files of the two killed servers");
}
