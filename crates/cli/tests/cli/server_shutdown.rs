//! Graceful shutdown of a server, immediate shutdown, and takeover after a kill.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::server::{Server, token};
use crate::text;
use crate::work::Place;

#[test]
fn a_server_that_is_stopped_gives_its_work_up_in_order() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let mut server = Server::of(&place, &[]);
    let waiting = server.ask(
        "POST /v1/executions",
        &admin,
        r#"{"function":"blocking_signal","input":{"order":1}}"#,
    );
    assert_eq!(waiting.status, 201, "{}", waiting.body);
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let why = place.run(&["why", waiting.json()["execution"].as_str().unwrap()]);
    assert!(
        text(&why.stdout).contains("owner      nobody\n"),
        "{}",
        text(&why.stdout)
    );
}

/// An HTTP service that a workflow calls, and that answers when the test lets it.
struct Slow {
    address: String,
    asked: mpsc::Receiver<TcpStream>,
}

impl Slow {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| drop(sender.send(stream)))
        });
        Self { address, asked }
    }

    /// Waits until it is asked.
    fn asked(&self) -> TcpStream {
        self.asked.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

/// A server with a workflow that has a request under way.
fn with_a_request_under_way(
    place: &Place,
    slow: &Slow,
    admin: &str,
) -> (Server, String, TcpStream) {
    let built = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/workflows/built/journals.wasm"
    );
    let deployed = place.run(&["deploy", built, "--allow-host", &slow.address]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    let server = Server::of(place, &["--allow-private-host", &slow.address]);
    let body =
        json!({ "function": "http_get", "input": format!("http://{}/", slow.address) }).to_string();
    let started = server.ask("POST /v1/executions", admin, &body);
    assert_eq!(started.status, 201, "{}", started.body);
    let id = started.json()["execution"].as_str().unwrap().to_owned();
    (server, id, slow.asked())
}

/// Signals a server to stop, and waits until it is no longer ready.
fn stopping(server: &Server) {
    server.signal("TERM");
    while server.ask("GET /readyz", "", "").status != 503 {}
}

#[test]
fn a_server_that_stops_says_so_and_lets_what_is_under_way_end() {
    let (place, slow) = (Place::sqlite(), Slow::start());
    let admin = token(&place, "admin", &[]);
    let (mut server, id, mut request) = with_a_request_under_way(&place, &slow, &admin);
    stopping(&server);
    assert_eq!(server.ask("GET /readyz", "", "").code(), "unavailable");
    assert_eq!(
        server
            .ask(&format!("GET /v1/executions/{id}"), &admin, "")
            .status,
        200
    );
    let late = server.ask(
        "POST /v1/executions",
        &admin,
        r#"{"function":"chain","input":{"steps":2},"key":"late"}"#,
    );
    assert_eq!(
        late.status, 201,
        "what is started now is for another: {}",
        late.body
    );
    request
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let journal = place.run(&["journal", "show", &id]);
    let count = |event: &str| text(&journal.stdout).matches(event).count();
    assert_eq!(
        (count("InvokeStarted"), count("InvokeCompleted")),
        (1, 1),
        "{}",
        text(&journal.stdout)
    );
    let late = place.run(&["start", "chain", "{\"steps\":2}", "--key", "late", "--wait"]);
    assert_eq!(text(&late.stdout), "2\n", "{}", text(&late.stderr));
}

#[test]
fn a_server_that_is_stopped_twice_ends_at_once() {
    let (place, slow) = (Place::sqlite(), Slow::start());
    let admin = token(&place, "admin", &[]);
    let (mut server, _, _request) = with_a_request_under_way(&place, &slow, &admin);
    stopping(&server);
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_server_that_was_killed_is_replaced_at_once_on_the_same_machine() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let lease = ["--lease-ms", "3600000"];
    let first = Server::of(&place, &lease);
    let start = r#"{"function":"blocking_signal","input":{"order":1}}"#;
    let waiting = first.ask("POST /v1/executions", &admin, start).json();
    let id = waiting["execution"].as_str().unwrap();
    let why = format!("GET /v1/executions/{id}/why");
    while !first.ask(&why, &admin, "").body.contains("user_approval") {}
    // It is killed when it is dropped, an hour before its lease runs out.
    drop(first);
    assert!(text(&place.run(&["why", id]).stdout).contains("no process works on this store"));
    let second = Server::of(&place, &lease);
    let body = r#"{"name":"user_approval","payload":{"approved":true}}"#;
    assert_eq!(
        second
            .ask(&format!("POST /v1/executions/{id}/signals"), &admin, body)
            .status,
        202
    );
    let result = second
        .ask(
            &format!("GET /v1/executions/{id}/result?waitMs=25000"),
            &admin,
            "",
        )
        .json();
    assert!(result.get("result").is_some(), "{result}");
    drop(second);
    // A graceful shutdown leaves no file behind.
    let mut third = Server::of(&place, &lease);
    third.signal("TERM");
    assert_eq!(third.child.wait().unwrap().code(), Some(0));
    let left = std::fs::read_dir(place.folder.path()).unwrap().flatten();
    let left = left
        .filter(|entry| entry.file_name().to_string_lossy().contains("-node-"))
        .count();
    assert_eq!(left, 2, "of the two that were killed");
}
