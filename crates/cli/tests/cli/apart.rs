//! A server and those who ask it: tenants are kept apart, whoever waits is answered, and whoever
//! guesses is slowed down.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::server::{Server, token};
use crate::text;
use crate::work::Place;

/// The verdict of what looks at all there is.
fn verdict(server: &Server, path: &str, token: &str) -> Value {
    let answer = server.ask(&format!("GET {path}"), token, "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let is_verdict = |line: &&str| line.contains("\"ok\"");
    serde_json::from_str(
        answer
            .body
            .lines()
            .find(is_verdict)
            .unwrap_or_else(|| panic!("{}", answer.body)),
    )
    .unwrap()
}

#[test]
fn an_administrator_checks_what_is_theirs_and_no_more() {
    let place = Place::sqlite();
    assert_eq!(
        place
            .run(&["start", "blocking_signal", "{\"order\":7}"])
            .status
            .code(),
        Some(0)
    );
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/runs/orders.jsonl"
    );
    let appended = place.run(&["state", "append", runs]);
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    let (ours, theirs) = (
        token(&place, "admin", &[]),
        token(&place, "admin", &["--tenant", "others"]),
    );
    let server = Server::of(&place, &[]);
    assert_eq!(verdict(&server, "/v1/doctor", &ours)["executions"], 1);
    assert_eq!(verdict(&server, "/v1/doctor", &theirs)["executions"], 0);
    assert_eq!(verdict(&server, "/v1/verify", &theirs)["runs"], 0);
}

#[test]
fn whoever_waits_is_answered_when_a_server_stops() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &[]);
    let start = json!({ "function": "blocking_signal", "input": { "order": 7 }, "waitMs": 60_000 })
        .to_string();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| server.ask("POST /v1/executions", &admin, &start));
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
        let asked = scope.spawn({
            let (server, admin) = (&server, &admin);
            move || server.ask(&result, admin, "")
        });
        let follow = format!("GET /v1/executions/{id}/events?from=1000");
        let followed = scope.spawn({
            let (server, admin) = (&server, &admin);
            move || server.ask(&follow, admin, "")
        });
        // All of them wait.
        while !text(&server.run(&admin, &["ls"]).stdout).contains(&id[..12]) {}
        server.signal("TERM");
        let (started, asked, followed) = (
            started.join().unwrap(),
            asked.join().unwrap(),
            followed.join().unwrap(),
        );
        assert_eq!(
            (started.status, &started.json()["execution"]),
            (201, &json!(id))
        );
        assert_eq!((asked.status, asked.json()), (200, json!({})));
        assert_eq!(
            followed.status, 200,
            "it ends, and can be taken up elsewhere"
        );
    });
}

#[test]
fn a_command_that_waits_outlives_the_server_it_asked() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    // Nobody else gets the port while a server has it.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let serve = || Server::begun(&mut place.command(&["serve", "--listen", &address]));
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
fn whoever_guesses_tokens_is_slowed_down() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &["--requests-per-second", "3"]);
    let guesses = (0..20).map(|guess| {
        server
            .ask("GET /v1/functions", &format!("onward_{guess:032}"), "")
            .status
    });
    let guesses: Vec<u16> = guesses.collect();
    assert!(
        guesses.contains(&401) && guesses.contains(&429),
        "{guesses:?}"
    );
    assert_eq!(
        server.ask("GET /v1/functions", &admin, "").status,
        200,
        "others need not wait for that"
    );
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &["--idle-ms", "300"]);
    // Nothing, a part of a head, what begins another protocol, and nothing more after an answer.
    for said in [
        "",
        "GET /healthz HTTP/1.1\r\nhost: a\r\n",
        "PRI * HT",
        "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    ] {
        let mut stream = server.connect();
        stream.write_all(said.as_bytes()).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert_eq!(
            heard.starts_with(b"HTTP/1.1 200"),
            said.ends_with("\r\n\r\n"),
            "{}",
            text(&heard)
        );
    }
    // Whoever has asked may wait for longer than that.
    let start = json!({ "function": "blocking_signal", "input": { "order": 7 }, "waitMs": 1_000 })
        .to_string();
    assert_eq!(
        server.ask("POST /v1/executions", &admin, &start).status,
        201
    );
}

#[test]
fn the_last_started_is_listed_first_unless_asked_otherwise() {
    let place = Place::sqlite();
    let started: Vec<String> = (0..3)
        .map(|order| {
            let input = json!({ "order": order }).to_string();
            let started = place.run(&[
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
        let listed = place.run(&[&["ls", "--json"], args].concat());
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
    let admin = token(&place, "viewer", &[]);
    let server = Server::of(&place, &[]);
    let blocked = server.ask("GET /v1/executions?state=blocked", &admin, "");
    assert_eq!(blocked.status, 200, "{}", blocked.body);
    let page = server.ask("GET /v1/executions?limit=2", &admin, "").json();
    let rest = format!(
        "GET /v1/executions?after={}",
        page["next"].as_str().unwrap()
    );
    let rest = server.ask(&rest, &admin, "").json();
    assert_eq!(rest["executions"][0]["execution"], started[0], "{rest}");
    let shown = server
        .ask(
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
fn a_command_that_asks_too_often_waits_and_asks_again() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &["--requests-per-second", "2"]);
    for _ in 0..6 {
        let listed = server.run(&admin, &["ls"]);
        assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    }
    let nowhere = place.run(&["ls", "--server", "127.0.0.1:7400"]);
    assert!(
        text(&nowhere.stderr).contains("such as http://127.0.0.1:7400"),
        "{}",
        text(&nowhere.stderr)
    );
}
