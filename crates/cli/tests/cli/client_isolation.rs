//! One client must not stop the others: limits of connections, heads, bodies, responses, labels and
//! lookups, tried on a server on loopback.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::http_server::{Server, create_token, start_workflow};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// How long a response may take that the server gives at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Sends bytes as they are, and returns what the server sends until it closes the connection.
fn exchange(server: &Server, sent: &str) -> String {
    let mut stream = server.connect();
    stream.set_read_timeout(Some(AT_ONCE)).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    read_to_close(&mut stream)
}

/// Reads until the server closes the connection.
fn read_to_close(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        // The server closed the connection without reading everything.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}: {}", text(&received)),
    }
    text(&received).to_owned()
}

/// The head of a request whose body has this length.
fn request_head(request: &str, token: &str, length: u64) -> String {
    format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[test]
fn an_upload_without_permission_is_refused_before_its_body_is_read() {
    let fixture = WorkflowStoreFixture::sqlite();
    let worker = create_token(&fixture, "worker", &[]);
    let viewer = create_token(&fixture, "viewer", &[]);
    let server = Server::start(&fixture, &[]);
    for (request, token) in [
        ("POST /v1/components", &worker),
        ("POST /v1/run-events", &viewer),
        ("POST /v1/executions", &viewer),
        ("POST /v1/campaign-runs", &viewer),
        ("POST /v1/tasks/claim", &viewer),
    ] {
        // No byte of the body is ever sent.
        let answer = exchange(&server, &request_head(request, token, 1_000_000));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
    }
    let body = "no".repeat(500);
    let unknown = request_head("POST /v1/components", "onward_0", 1_000) + &body;
    let answer = exchange(&server, &unknown);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn a_guess_of_a_token_is_rate_limited_before_it_is_looked_up() {
    let fixture = WorkflowStoreFixture::sqlite();
    let known = create_token(&fixture, "admin", &[]);
    let unused = create_token(&fixture, "viewer", &[]);
    let server = Server::start(&fixture, &["--requests-per-second", "2"]);
    let status = |token: &str| server.send_request("GET /v1/functions", token, "").status;
    assert_eq!(status(&known), 200);
    let guesses: Vec<u16> = (0..20)
        .map(|guess| status(&format!("onward_{guess:032}")))
        .collect();
    assert!(guesses.contains(&429), "{guesses:?}");
    assert_eq!(
        status(&unused),
        429,
        "a token that was never used is not looked up either"
    );
    assert_eq!(
        status(&known),
        200,
        "a token that was used is not limited by guesses"
    );
}

#[test]
fn connections_beyond_the_limit_are_refused_and_the_others_are_served() {
    let fixture = WorkflowStoreFixture::sqlite();
    let limits = ["--max-connections", "8", "--max-connections-per-peer", "6"];
    let server = Server::start(&fixture, &limits);
    let mut idle: Vec<TcpStream> = (0..6).map(|_| server.connect()).collect();
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let refused = exchange(&server, request);
    assert!(
        refused.is_empty() || refused.starts_with("HTTP/1.1 503 "),
        "{refused}"
    );
    // A connection within the limit still works.
    idle[0].write_all(request.as_bytes()).unwrap();
    let mut head = [0; 15];
    idle[0].read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    drop(idle);
    // The slots are freed when the server has noticed that the connections are closed.
    let closing = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    while !exchange(&server, closing).starts_with("HTTP/1.1 200 ") {}
}

#[test]
fn idle_connections_leave_descriptors_for_the_store() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let serve = fixture.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut limited = Command::new("sh");
    limited
        .args([
            "-c",
            "ulimit -n 200; exec \"$1\" serve --listen 127.0.0.1:0",
            "sh",
        ])
        .arg(serve.get_program())
        .current_dir(fixture.folder.path())
        .envs(
            serve
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let mut server = Server::spawn(&mut limited);
    let idle: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    let started = fixture.run(&["start", "chain", "{\"steps\":3}", "--key", "while-flooded"]);
    assert_eq!(started.status.code(), Some(0), "{}", text(&started.stderr));
    // The engine works on although no more connections are accepted.
    let result = fixture.run(&[
        "start",
        "chain",
        "{\"steps\":3}",
        "--key",
        "while-flooded",
        "--wait",
    ]);
    assert_eq!(text(&result.stdout), "3\n", "{}", text(&result.stderr));
    assert!(
        server.child.try_wait().unwrap().is_none(),
        "the server runs"
    );
    drop(idle);
    let list = request_head("GET /v1/executions", &admin, 0);
    while !exchange(&server, &list).starts_with("HTTP/1.1 200 ") {}
}

#[test]
fn methods_and_paths_of_clients_do_not_become_labels_of_metrics() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &[]);
    let invented = |number: u32| {
        let length = 30_000 / (number + 1);
        let method = "Y".repeat(length as usize);
        server.send_request(&format!("{method} /healthz"), "", "");
        server.send_request(&format!("BREW-{number} /nowhere/{number}"), "", "");
    };
    invented(0);
    let before = server.send_request("GET /metrics", "", "").body;
    (1..50).for_each(invented);
    let after = server.send_request("GET /metrics", "", "").body;
    let series = |metrics: &str| {
        metrics
            .lines()
            .filter(|line| line.starts_with("onward_http_request_seconds_count"))
            .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
            .filter(|series| !series.contains("/metrics"))
            .collect::<Vec<_>>()
    };
    assert_eq!(series(&before), series(&after));
    assert!(!after.contains("BREW") && !after.contains("YYY"), "{after}");
    assert!(after.contains("method=\"other\""), "{after}");
}

#[test]
fn metrics_can_have_an_address_of_their_own() {
    let fixture = WorkflowStoreFixture::sqlite();
    // The port is free until the server takes it.
    let metrics_address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let server = Server::start(&fixture, &["--metrics-address", &metrics_address]);
    assert_eq!(server.send_request("GET /metrics", "", "").status, 404);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&metrics_address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        read_to_close(&mut stream)
    };
    assert!(get("/metrics").contains("onward_in_doubt_total 0"));
    assert!(get("/v1/executions").starts_with("HTTP/1.1 404 "));
    assert!(get("/healthz").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_client_that_does_not_read_its_responses_loses_its_connection() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &["--idle-timeout-ms", "500"]);
    let mut stream = server.connect();
    stream.set_write_timeout(Some(AT_ONCE)).unwrap();
    let request = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
    // Without the timeout, the write would block until its own timeout: the server does not read
    // requests whose responses it cannot send.
    let error = (0..10_000)
        .find_map(|_| stream.write_all(request.as_bytes()).err())
        .expect("the server closes the connection");
    assert!(
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{error}"
    );
}

#[test]
fn a_body_that_does_not_arrive_times_out() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &["--idle-timeout-ms", "500"]);
    let head = request_head("POST /v1/executions", &admin, 100);
    let answer = exchange(&server, &format!("{head}{{\"function\""));
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[test]
fn the_api_description_is_sent_once_to_a_client_that_keeps_it() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &[]);
    let first = server.send_request("GET /openapi.json", "", "");
    assert_eq!(first.status, 200);
    assert!(first.head.contains("content-type: application/json"));
    let tag = first
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("an entity tag")
        .to_owned();
    for (known, status) in [
        (tag.clone(), 304),
        (format!("\"other\", W/{tag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
    ] {
        let header = format!("if-none-match: {known}\r\n");
        let second = server.send_request_with("GET /openapi.json", "", &header, "");
        assert_eq!(second.status, status, "{known}");
        assert_eq!(second.body.is_empty(), status == 304);
    }
}

#[test]
fn a_token_has_a_limited_number_of_event_streams() {
    let fixture = WorkflowStoreFixture::sqlite();
    let viewer = create_token(&fixture, "viewer", &[]);
    let admin = create_token(&fixture, "admin", &[]);
    let id = start_workflow(&fixture, &["blocking_signal", "{\"order\":7}"]);
    let server = Server::start(&fixture, &[]);
    let follow = |token: &str| {
        let request = format!(
            "GET /v1/executions/{id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, text(&head)[9..].to_owned())
    };
    let open: Vec<_> = (0..256).map(|_| follow(&viewer)).collect();
    assert!(open.iter().all(|(_, status)| status == "200"));
    assert_eq!(follow(&viewer).1, "429");
    assert_eq!(follow(&admin).1, "200", "other tokens are not affected");
    drop(open);
    // The slots are freed when the server has noticed that the connections are closed.
    while follow(&viewer).1 != "200" {}
}

#[test]
fn an_ambiguous_or_oversized_request_is_refused_at_once() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let one_host = "host: localhost\r\n";
    let both = "transfer-encoding: chunked\r\ncontent-length: 3\r\n";
    let reversed = "content-length: 3\r\ntransfer-encoding: chunked\r\n";
    let two_lengths = "content-length: 3\r\ncontent-length: 4\r\n";
    let long_header = format!("x-long: {}\r\n", "x".repeat(70_000));
    let many_headers = "x: y\r\n".repeat(200);
    for (method, headers, status) in [
        ("GET", String::new(), 400),
        ("GET", one_host.repeat(2), 400),
        ("POST", format!("{one_host}{both}"), 400),
        ("POST", format!("{one_host}{reversed}"), 400),
        ("POST", format!("{one_host}{two_lengths}"), 400),
        (
            "GET",
            format!("{one_host}content-length: 99999999999\r\n"),
            413,
        ),
        ("GET", format!("{one_host}{long_header}"), 431),
        ("GET", format!("{one_host}{many_headers}"), 431),
        ("GET", one_host.to_owned(), 200),
    ] {
        let sent = format!("{method} /healthz HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
        let answer = exchange(&server, &sent);
        let shown: String = headers.chars().take(80).collect();
        let answered = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(answered, status.to_string(), "{shown}: {answer}");
    }
    // A request after one with a body whose end is not in its head is not read.
    let chunked =
        "POST /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = exchange(
        &server,
        &format!("{chunked}GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    );
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    // Each path has a limit of its own.
    let start = request_head("POST /v1/executions", &admin, 2_200_000);
    let answer = exchange(&server, &start);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(
        server
            .send_request(
                "POST /v1/executions",
                &admin,
                &json!({ "function": "chain", "input": { "steps": 1 } }).to_string()
            )
            .status,
        201
    );
}

/// Takes the write lock of a SQLite file, and holds it until its standard input is closed.
const HOLD_WRITE_LOCK: &str = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute('BEGIN IMMEDIATE')
print('held', flush=True)
sys.stdin.read()
store.execute('ROLLBACK')
";

#[test]
fn a_server_that_cannot_write_its_store_is_not_ready_and_reports_it_at_once() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &["--lease-ms", "1000"]);
    let readiness = || {
        exchange(
            &server,
            "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        )
    };
    assert!(readiness().ends_with("ready\n"));
    let mut holder = Command::new("python3")
        .args(["-c", HOLD_WRITE_LOCK])
        .arg(fixture.folder.path().join("store.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 4];
    holder.stdout.take().unwrap().read_exact(&mut held).unwrap();
    // A heartbeat begins within a third of the lease, and counts as failed after two seconds. Each
    // response arrives meanwhile.
    let refused = std::iter::repeat_with(readiness)
        .find(|answer| !answer.starts_with("HTTP/1.1 200 "))
        .unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("a write has not completed"), "{refused}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    while !readiness().starts_with("HTTP/1.1 200 ") {}
}
