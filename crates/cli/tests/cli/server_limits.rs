//! Limits of a server: tenants are isolated, long polls end at shutdown, and requests are rate
//! limited.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::http_server::{Server, create_token};
use crate::workflows::WorkflowStoreFixture;
use crate::{run_with_input, text};

/// The report at the end of a check of all data.
fn fetch_report(server: &Server, path: &str, token: &str) -> Value {
    let answer = server.send_request(&format!("GET {path}"), token, "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let is_report = |line: &&str| line.contains("\"ok\"");
    serde_json::from_str(
        answer
            .body
            .lines()
            .find(is_report)
            .unwrap_or_else(|| panic!("{}", answer.body)),
    )
    .unwrap()
}

#[test]
fn an_administrator_checks_only_the_data_of_its_tenant() {
    let fixture = WorkflowStoreFixture::sqlite();
    assert_eq!(
        fixture
            .run(&["start", "blocking_signal", "{\"order\":7}"])
            .status
            .code(),
        Some(0)
    );
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/runs/orders.jsonl"
    );
    let appended = fixture.run(&["state", "append", runs]);
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    let (own, other) = (
        create_token(&fixture, "admin", &[]),
        create_token(&fixture, "admin", &["--tenant", "other"]),
    );
    let server = Server::start(&fixture, &[]);
    assert_eq!(fetch_report(&server, "/v1/doctor", &own)["executions"], 1);
    assert_eq!(fetch_report(&server, "/v1/doctor", &other)["executions"], 0);
    assert_eq!(fetch_report(&server, "/v1/verify", &other)["runs"], 0);
}

#[test]
fn waiting_requests_are_answered_when_the_server_stops() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let start = json!({ "function": "blocking_signal", "input": { "order": 7 }, "waitMs": 60_000 })
        .to_string();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| server.send_request("POST /v1/executions", &admin, &start));
        let waiting = || {
            text(
                &server
                    .run(&admin, &["ls", "--json", "--state", "blocked"])
                    .stdout,
            )
            .to_owned()
        };
        while waiting().is_empty() {}
        let listed: Value = serde_json::from_str(waiting().lines().next().unwrap()).unwrap();
        let id = listed["execution"].as_str().unwrap().to_owned();
        let result = format!("GET /v1/executions/{id}/result?waitMs=60000");
        let polled = scope.spawn({
            let (server, admin) = (&server, &admin);
            move || server.send_request(&result, admin, "")
        });
        let follow = format!("GET /v1/executions/{id}/events?from=1000");
        let followed = scope.spawn({
            let (server, admin) = (&server, &admin);
            move || server.send_request(&follow, admin, "")
        });
        // All three requests wait.
        while !text(&server.run(&admin, &["ls"]).stdout).contains(&id[..12]) {}
        server.signal("TERM");
        let (started, polled, followed) = (
            started.join().unwrap(),
            polled.join().unwrap(),
            followed.join().unwrap(),
        );
        assert_eq!(
            (started.status, &started.json()["execution"]),
            (201, &json!(id))
        );
        assert_eq!((polled.status, polled.json()), (200, json!({})));
        assert_eq!(
            followed.status, 200,
            "the stream ends and can be resumed on another server"
        );
    });
}

#[test]
fn a_waiting_command_survives_a_server_restart() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    // The port is free until the first server takes it.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let serve = || Server::spawn(&mut fixture.command(&["serve", "--listen", &address]));
    let mut first = serve();
    let mut command = first.command(
        &admin,
        &[
            "start",
            "blocking_signal",
            "{\"order\":7}",
            "--wait",
            "--key",
            "k",
        ],
    );
    let waiting = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let blocked = |server: &Server| {
        text(
            &server
                .run(&admin, &["ls", "--json", "--state", "blocked"])
                .stdout,
        )
        .to_owned()
    };
    while blocked(&first).is_empty() {}
    let listed: Value = serde_json::from_str(blocked(&first).lines().next().unwrap()).unwrap();
    first.signal("TERM");
    first.child.wait().unwrap();
    let second = serve();
    let id = listed["execution"].as_str().unwrap();
    let sent = second.run(
        &admin,
        &["signal", id, "user_approval", "{\"approved\":true}"],
    );
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(0), "{}", text(&waited.stderr));
}

#[test]
fn an_idle_connection_is_closed() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &["--idle-timeout-ms", "300"]);
    // No data, part of a head, the start of another protocol, and silence after a response.
    for sent in [
        "",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
        "PRI * HT",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let mut stream = server.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert_eq!(
            received.starts_with(b"HTTP/1.1 200"),
            sent.ends_with("\r\n\r\n"),
            "{}",
            text(&received)
        );
    }
    // A request in progress may take longer than the idle timeout.
    let start = json!({ "function": "blocking_signal", "input": { "order": 7 }, "waitMs": 1_000 })
        .to_string();
    assert_eq!(
        server
            .send_request("POST /v1/executions", &admin, &start)
            .status,
        201
    );
}

#[test]
fn executions_are_listed_newest_first_by_default() {
    let fixture = WorkflowStoreFixture::sqlite();
    let started: Vec<String> = (0..3)
        .map(|order| {
            let input = json!({ "order": order }).to_string();
            let started = fixture.run(&[
                "start",
                "blocking_signal",
                &input,
                "--key",
                &order.to_string(),
                "--json",
            ]);
            let started: Value = serde_json::from_slice(&started.stdout).unwrap();
            started["execution"].as_str().unwrap().to_owned()
        })
        .collect();
    let listed = |args: &[&str]| -> Vec<String> {
        let listed = fixture.run(&[&["ls", "--json"], args].concat());
        let id = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["execution"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        text(&listed.stdout).lines().map(id).collect()
    };
    let newest: Vec<String> = started.iter().rev().cloned().collect();
    assert_eq!(listed(&["--oldest"]), started);
    assert_eq!(listed(&[]), newest);
    assert_eq!(listed(&["--limit", "2"]), newest[..2]);
    let admin = create_token(&fixture, "viewer", &[]);
    let server = Server::start(&fixture, &[]);
    let blocked = server.send_request("GET /v1/executions?state=blocked", &admin, "");
    assert_eq!(blocked.status, 200, "{}", blocked.body);
    let page = server
        .send_request("GET /v1/executions?limit=2", &admin, "")
        .json();
    let rest = format!(
        "GET /v1/executions?after={}",
        page["next"].as_str().unwrap()
    );
    let rest = server.send_request(&rest, &admin, "").json();
    assert_eq!(rest["executions"][0]["execution"], started[0], "{rest}");
    let shown = server
        .send_request(
            &format!("GET /v1/executions/{}", &started[0][..12]),
            &admin,
            "",
        )
        .json();
    assert_eq!(
        (&shown["execution"], &shown["key"]),
        (&json!(started[0]), &json!("0"))
    );
}

#[test]
fn a_rate_limited_command_waits_and_retries() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &["--requests-per-second", "2"]);
    for _ in 0..6 {
        let listed = server.run(&admin, &["ls"]);
        assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    }
    let malformed = fixture.run(&["ls", "--server", "127.0.0.1:7400"]);
    assert!(
        text(&malformed.stderr).contains("such as http://127.0.0.1:7400"),
        "{}",
        text(&malformed.stderr)
    );
}

#[test]
fn a_command_reports_why_the_server_refused_a_large_request() {
    let fixture = WorkflowStoreFixture::sqlite();
    let (admin, worker) = (
        create_token(&fixture, "admin", &[]),
        create_token(&fixture, "worker", &[]),
    );
    let server = Server::start(&fixture, &[]);
    let large = format!("\"{}\"", "x".repeat(10 << 20));
    for _ in 0..5 {
        let refused = run_with_input(
            server.command(&admin, &["start", "chain", "-"]),
            large.as_bytes(),
        );
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            text(&refused.stderr).contains("the body exceeds the maximum size for this path"),
            "{}",
            text(&refused.stderr)
        );
    }
    // A refusal for another reason arrives too.
    let component = fixture.folder.path().join("large.wasm");
    std::fs::write(&component, &large).unwrap();
    let deploy = ["deploy", component.to_str().unwrap()];
    let refused = server.run(&worker, &deploy);
    assert!(
        text(&refused.stderr).contains("the token has the role worker"),
        "{}",
        text(&refused.stderr)
    );
    // Larger than any request: nothing is sent.
    std::fs::File::create(&component)
        .unwrap()
        .set_len((64 << 20) + 1)
        .unwrap();
    let refused = server.run(&admin, &deploy);
    assert!(
        text(&refused.stderr).contains("a server accepts at most 67108864"),
        "{}",
        text(&refused.stderr)
    );
}
