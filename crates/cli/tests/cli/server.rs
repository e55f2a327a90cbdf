//! The server, and the command line in front of it: the same words as on the store itself, and nothing for those who may not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use onward_testing::RunEventGenerator;
use serde_json::{Value, json};

use crate::work::Place;
use crate::{fed, onward, state, text};

/// A server that is stopped in the end.
pub(crate) struct Server {
    pub(crate) child: Child,
    address: String,
}

impl Server {
    /// Serves the store of a place.
    pub(crate) fn of(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        Self::begun(&mut command)
    }

    pub(crate) fn begun(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut address = None;
        let mut lines = stderr.lines().map_while(Result::ok);
        for line in lines.by_ref() {
            if let Some((_, rest)) = line.split_once("http://") {
                address = Some(rest.split([',', ' ']).next().unwrap().to_owned());
                break;
            }
        }
        // A pipe that nobody reads stops whoever writes into it.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address: address.expect("it says where it listens"),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// A command that asks this server.
    pub(crate) fn command(&self, token: &str, args: &[&str]) -> Command {
        let mut command = onward(args);
        command
            .env("ONWARD_SERVER", self.url())
            .env("ONWARD_TOKEN", token);
        command
    }

    pub(crate) fn run(&self, token: &str, args: &[&str]) -> Output {
        self.command(token, args).output().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    pub(crate) fn ask(&self, request: &str, token: &str, body: &str) -> Answer {
        self.ask_with(request, token, "content-type: application/json\r\n", body)
    }

    pub(crate) fn ask_with(&self, request: &str, token: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let bearer = if token.is_empty() {
            String::new()
        } else {
            format!("authorization: Bearer {token}\r\n")
        };
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{bearer}{headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    /// The code of a problem that is told as one.
    pub(crate) fn code(&self) -> String {
        assert!(
            self.head.contains("content-type: application/problem+json"),
            "{}",
            self.head
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn token(place: &Place, role: &str, args: &[&str]) -> String {
    let name = format!("{role} {}", args.join(" "));
    let output = place.run(&[&["token", "create", &name, "--role", role], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn started(place: &Place, args: &[&str]) -> String {
    let output = place.run(&[&["start"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// What a command printed, but for what is in brackets: how long ago something was depends on when one asks.
fn without_ages(printed: &[u8]) -> String {
    let printed = text(printed);
    let shown = |part: &str| {
        part.split_once(')')
            .map_or(part, |(_, rest)| rest)
            .to_owned()
    };
    printed
        .split('(')
        .enumerate()
        .map(|(i, part)| if i == 0 { part.to_owned() } else { shown(part) })
        .collect()
}

#[test]
fn every_command_says_the_same_about_a_store_and_about_its_server() {
    for place in [Place::sqlite(), Place::postgres()] {
        let admin = token(&place, "admin", &[]);
        let chain = started(&place, &["chain", "{\"steps\":3}", "--key", "a", "--wait"]);
        assert_eq!(chain, "3");
        let waiting = started(&place, &["blocking_signal", "{\"order\":7}", "--key", "b"]);
        let server = Server::of(&place, &[]);
        // Until the server has come to it: what is compared must not go on meanwhile.
        while !text(&server.run(&admin, &["ls", "--state", "blocked"]).stdout)
            .contains(&waiting[..12])
        {}
        let chain = started(&place, &["chain", "{\"steps\":3}", "--key", "a"]);
        let id = &chain[..10];
        for args in [
            &["ls"][..],
            &["ls", "--json", "--function", "chain"],
            &["ls", "--json", "--state", "completed", "--limit", "1"],
            &["show", id],
            &["show", "--json", id],
            &["why", &chain],
            &["journal", "show", id],
            &["functions"],
            &["functions", "--json"],
            &["token", "ls"],
            &["show", "ffffffff"],
            &["why", "nonsense"],
            &["start", "no_such_function"],
            &["start", "chain", "{\"steps\":4}", "--key", "a"],
            &["signal", id, "late"],
            &["state", "events", "no-such-run"],
            &["state", "snapshot", "no-such-run"],
        ] {
            let (here, there) = (place.run(args), server.run(&admin, args));
            assert_eq!(
                here.status.code(),
                there.status.code(),
                "{args:?}: {}",
                text(&there.stderr)
            );
            assert_eq!(
                without_ages(&here.stdout),
                without_ages(&there.stdout),
                "{args:?}"
            );
            assert_eq!(
                without_ages(&here.stderr),
                without_ages(&there.stderr),
                "{args:?}"
            );
        }
        let sent = server.run(
            &admin,
            &[
                "signal",
                &waiting,
                "user_approval",
                "{\"approved\":true}",
                "--json",
            ],
        );
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        let watched = server.run(&admin, &["watch", &waiting]);
        assert_eq!(watched.status.code(), Some(0), "{}", text(&watched.stderr));
        for args in [
            &["doctor", "--json"][..],
            &["journal", "replay", id],
            &["state", "verify", "--json"],
        ] {
            let (here, there) = (place.run(args), server.run(&admin, args));
            assert_eq!(
                (here.status.code(), there.status.code()),
                (Some(0), Some(0)),
                "{}",
                text(&there.stderr)
            );
            assert_eq!(text(&here.stdout), text(&there.stdout), "{args:?}");
        }
        let result = server.run(&admin, &["start", "chain", "{\"steps\":7}", "--wait"]);
        assert_eq!(text(&result.stdout), "7\n", "{}", text(&result.stderr));
    }
}

#[test]
fn run_events_go_in_and_out_through_a_server() {
    let place = Place::sqlite();
    let events = RunEventGenerator::new("served").next_events(50);
    let run = events[0].run_id.to_string();
    let scope = [
        "--tenant",
        "tenant-1",
        "--project",
        "analytics",
        "--environment",
        "production",
    ];
    let engineer = token(&place, "engineer", &scope);
    let stranger = token(&place, "engineer", &["--tenant", "somebody-else"]);
    let server = Server::of(&place, &[]);

    let appended = fed(
        server.command(&engineer, &["state", "append", "-"]),
        state::lines(&events).as_bytes(),
    );
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    assert_eq!(text(&appended.stdout).lines().count(), 50);
    let (here, there) = (
        place.run(&["state", "events", &run]),
        server.run(&engineer, &["state", "events", &run]),
    );
    assert_eq!(text(&here.stdout), text(&there.stdout));
    assert_eq!(text(&here.stdout).lines().count(), 50);
    let page = server
        .ask(
            &format!("GET /v1/runs/{run}/events?after=48&waitMs=1000"),
            &engineer,
            "",
        )
        .json();
    assert_eq!(
        (page["events"].as_array().unwrap().len(), &page["watermark"]),
        (2, &json!(50))
    );
    let snapshot = server.run(&engineer, &["state", "snapshot", &run, "--project"]);
    assert_eq!(
        snapshot.status.code(),
        Some(0),
        "{}",
        text(&snapshot.stderr)
    );

    let refused = fed(
        server.command(&stranger, &["state", "append", "-"]),
        state::lines(&events[..1]).as_bytes(),
    );
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert_eq!(
        server
            .ask(&format!("GET /v1/runs/{run}/events"), &stranger, "")
            .code(),
        "no_run"
    );
    assert_eq!(
        server
            .ask(&format!("GET /v1/runs/{run}/snapshot"), &stranger, "")
            .code(),
        "no_run"
    );
}

/// What a letter in the table below stands for.
const fn status(letter: char) -> u16 {
    match letter {
        'r' => 200,
        'c' => 201,
        'a' | 'o' => 202,
        'd' => 204,
        'b' => 400,
        'n' => 404,
        'l' => 409,
        'u' => 422,
        _ => 403,
    }
}

#[test]
fn nobody_sees_or_does_more_than_their_token_allows() {
    let place = Place::sqlite();
    let [viewer, operator, engineer, admin, worker] =
        ["viewer", "operator", "engineer", "admin", "worker"].map(|role| token(&place, role, &[]));
    let other = token(&place, "admin", &["--environment", "other"]);
    let id = started(&place, &["blocking_signal", "{\"order\":7}"]);
    let server = Server::of(&place, &[]);
    let start = r#"{"function":"chain","input":{"steps":1}}"#;
    let (cancel, signal) = (r#"{"reason":"enough"}"#, r#"{"name":"x"}"#);
    let look = format!("GET /v1/executions/{id}");
    let paths = [
        ("GET /v1/executions", "", "rrrr-"),
        (&*look, "", "rrrr-"),
        (&format!("{look}/journal"), "", "rrrr-"),
        (&format!("{look}/result"), "", "rrrr-"),
        (&format!("{look}/why"), "", "rrrr-"),
        (&format!("{look}/component"), "", "rrrr-"),
        ("GET /v1/functions", "", "rrrr-"),
        ("GET /v1/components", "", "rrrr-"),
        ("GET /v1/runs/x/events", "", "nnnn-"),
        ("POST /v1/executions", start, "-ccc-"),
        (
            &format!("POST /v1/executions/{id}/signals"),
            signal,
            "-aaa-",
        ),
        (&format!("POST /v1/executions/{id}/cancel"), cancel, "-ooo-"),
        ("POST /v1/run-events", r#"{"events":[]}"#, "--bb-"),
        ("POST /v1/components", "x", "--uu-"),
        ("GET /v1/tasks", "", "rrrr-"),
        (
            "POST /v1/tasks/claim",
            r#"{"worker":"w","functions":["far"]}"#,
            "---rr",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/heartbeat"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/release"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/complete"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/fail"),
            r#"{"token":"x","error":{"message":"no"}}"#,
            "---ll",
        ),
        ("GET /v1/tokens", "", "---r-"),
        (
            "POST /v1/tokens",
            r#"{"name":"n","role":"viewer"}"#,
            "---c-",
        ),
        ("DELETE /v1/tokens/n", "", "---d-"),
        ("GET /v1/doctor", "", "---r-"),
        ("GET /v1/verify", "", "---r-"),
    ];
    for (request, body, letters) in paths {
        for (letter, token) in letters
            .chars()
            .zip([&viewer, &operator, &engineer, &admin, &worker])
        {
            // A component is not decoded as text, nor is it JSON.
            if request.ends_with("/component") && letter == 'r' {
                continue;
            }
            let answer = server.ask(request, token, body);
            // The first who cancels it leaves nothing to cancel.
            let is_over = letter == 'o' && answer.status == 409;
            assert!(
                is_over || answer.status == status(letter),
                "{request} by {letters}: {}",
                answer.body
            );
        }
        for token in ["", "onward_0000", "nonsense"] {
            assert_eq!(
                server.ask(request, token, body).code(),
                "unauthenticated",
                "{request}"
            );
        }
        if request.contains(&id) {
            let code = if request.contains("tasks") {
                "lease_lost"
            } else {
                "no_execution"
            };
            assert_eq!(server.ask(request, &other, body).code(), code, "{request}");
        }
    }
    assert_eq!(
        server.ask("GET /v1/executions", &other, "").json()["executions"],
        json!([])
    );
    let header = "onward-environment: default\r\n";
    assert_eq!(
        server
            .ask_with("GET /v1/executions", &other, header, "")
            .code(),
        "forbidden"
    );
    let file = std::fs::read(place.folder.path().join("store.db-wal")).unwrap();
    assert!(
        !file
            .windows(32)
            .any(|bytes| bytes == &admin.as_bytes()[7..39]),
        "tokens are not stored"
    );
}

#[test]
fn a_token_that_is_taken_back_or_has_run_out_is_no_longer_good() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let old = token(&place, "viewer", &["--expires", "2020-01-01T00:00:00Z"]);
    let server = Server::of(&place, &[]);
    assert_eq!(
        server.ask("GET /v1/executions", &old, "").code(),
        "unauthenticated"
    );
    let made = server.run(
        &admin,
        &["token", "create", "guest", "--role", "viewer", "--json"],
    );
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let guest = made["token"].as_str().unwrap();
    assert_eq!(
        server
            .run(&admin, &["token", "revoke", "guest"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        server.ask("GET /v1/executions", guest, "").code(),
        "unauthenticated"
    );
    let again = server.run(&admin, &["token", "revoke", "guest"]);
    assert_eq!(again.status.code(), Some(2));
    let twice = ["token", "create", "twin", "--role", "viewer"];
    assert_eq!(server.run(&admin, &twice).status.code(), Some(0));
    assert!(text(&server.run(&admin, &twice).stderr).contains("already"));
}

#[test]
fn a_server_does_not_listen_to_the_world_unprotected() {
    let place = Place::sqlite();
    let open = ["serve", "--listen", "0.0.0.0:0"];
    let without_token = place.run(&open);
    assert_eq!(without_token.status.code(), Some(2));
    assert!(
        text(&without_token.stderr).contains("nobody has a token"),
        "{}",
        text(&without_token.stderr)
    );
    token(&place, "admin", &[]);
    let without_tls = place.run(&open);
    assert!(
        text(&without_tls.stderr).contains("--tls-in-front"),
        "{}",
        text(&without_tls.stderr)
    );
    let dev = place.run(&["dev", "--listen", "0.0.0.0:0"]);
    assert!(
        text(&dev.stderr).contains("beyond loopback"),
        "{}",
        text(&dev.stderr)
    );
}

#[test]
fn whatever_is_wrong_with_a_request_is_told_as_a_problem() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &[]);
    let ask = |request: &str, body: &str| server.ask(request, &admin, body).code();
    assert_eq!(ask("GET /nowhere", ""), "not_found");
    assert_eq!(ask("PUT /v1/executions", ""), "method_not_allowed");
    assert_eq!(ask("POST /v1/executions", "{"), "invalid_request");
    assert_eq!(ask("POST /v1/executions", "{}"), "unprocessable");
    assert_eq!(
        ask("POST /v1/executions", r#"{"function":"chain","colour":1}"#),
        "unprocessable"
    );
    assert_eq!(
        ask("POST /v1/executions", r#"{"function":"nothing"}"#),
        "no_function"
    );
    assert_eq!(
        ask("POST /v1/executions", r#"{"function":"step"}"#),
        "not_a_workflow"
    );
    assert_eq!(ask("GET /v1/executions?limit=many", ""), "invalid_request");
    assert_eq!(ask("GET /v1/executions?colour=red", ""), "invalid_request");
    assert_eq!(ask("GET /v1/executions?after=x", ""), "invalid_request");
    assert_eq!(ask("GET /v1/executions/%ff", ""), "invalid_request");
    let large = format!(
        r#"{{"function":"chain","input":"{}"}}"#,
        "x".repeat(1_100_000)
    );
    assert_eq!(ask("POST /v1/executions", &large), "too_large");
    let huge = "x".repeat(2_200_000);
    assert_eq!(ask("POST /v1/executions", &huge), "too_large");
    let plain = server.ask_with(
        "POST /v1/executions",
        &admin,
        "content-type: text/plain\r\n",
        "{}",
    );
    assert_eq!(plain.code(), "unsupported_media_type");
    let unknown = server.ask("GET /v1/executions", "", "");
    assert!(
        unknown.head.contains("www-authenticate: bearer"),
        "{}",
        unknown.head
    );
}

#[test]
fn a_start_is_idempotent_over_http() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &[]);
    let body = r#"{"function":"chain","input":{"steps":2},"waitMs":30000}"#;
    let headers = "content-type: application/json\r\nidempotency-key: k-1\r\n";
    let first = server.ask_with("POST /v1/executions", &admin, headers, body);
    let second = server.ask_with("POST /v1/executions", &admin, headers, body);
    assert_eq!(
        (first.status, second.status),
        (201, 200),
        "{} {}",
        first.body,
        second.body
    );
    assert_eq!(first.json()["execution"], second.json()["execution"]);
    assert_eq!(
        (&first.json()["result"], &second.json()["result"]),
        (&json!(2), &json!(2))
    );
    let other = server.ask_with(
        "POST /v1/executions",
        &admin,
        headers,
        &body.replace('2', "3"),
    );
    assert_eq!(other.code(), "key_taken");
}

#[test]
fn live_events_can_be_taken_up_where_they_broke_off() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &[]);
    let started = server
        .ask(
            "POST /v1/executions",
            &admin,
            r#"{"function":"chain","input":{"steps":2}}"#,
        )
        .json();
    let path = format!(
        "GET /v1/executions/{}/events",
        started["execution"].as_str().unwrap()
    );
    let whole = server.ask_with(&path, &admin, "", "");
    assert!(
        whole.head.contains("content-type: text/event-stream"),
        "{}",
        whole.head
    );
    let ids = |answer: &Answer| -> Vec<u64> {
        answer
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .map(|id| id.parse().unwrap())
            .collect()
    };
    let all = ids(&whole);
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    assert!(whole.body.contains("event: end"), "{}", whole.body);
    let rest = server.ask_with(&path, &admin, "last-event-id: 3\r\n", "");
    assert_eq!(ids(&rest), all[4..]);
}

#[test]
fn whoever_asks_too_much_is_told_to_wait() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let server = Server::of(&place, &["--requests-per-second", "3"]);
    let answers: Vec<Answer> = (0..6)
        .map(|_| server.ask("GET /v1/functions", &admin, ""))
        .collect();
    let refused = answers
        .iter()
        .find(|answer| answer.status == 429)
        .expect("six are more than three");
    assert_eq!(refused.code(), "rate_limited");
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(
        server.ask("GET /healthz", "", "").body,
        "ok\n",
        "who watches is not counted"
    );
}

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

/// Somebody whom a workflow asks for something, and who takes as long as the test wants.
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

/// Asks a server to stop, and waits until it says that it does.
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
    // Who ends in order leaves nothing behind.
    let mut third = Server::of(&place, &lease);
    third.signal("TERM");
    assert_eq!(third.child.wait().unwrap().code(), Some(0));
    let left = std::fs::read_dir(place.folder.path()).unwrap().flatten();
    let left = left
        .filter(|entry| entry.file_name().to_string_lossy().contains("-node-"))
        .count();
    assert_eq!(left, 2, "of the two that were killed");
}

#[test]
fn development_needs_no_token_and_has_something_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = onward(&["dev", "--listen", "127.0.0.1:0"]);
    command.current_dir(folder.path()).env(
        "ONWARD_CACHE",
        std::env::temp_dir().join("onward-test-cache"),
    );
    let server = Server::begun(&mut command);
    assert_eq!(server.ask("GET /readyz", "", "").body, "ready\n");
    let functions = server.ask("GET /v1/functions", "", "").json();
    assert!(
        functions["functions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["name"] == "order"),
        "{functions}"
    );
    let start = [
        "start",
        "order",
        r#"{"customer":"Ada","item":"lamp","quantity":2}"#,
    ];
    let started = onward(&start)
        .env("ONWARD_SERVER", server.url())
        .output()
        .unwrap();
    assert_eq!(started.status.code(), Some(0), "{}", text(&started.stderr));
    // There is nobody to be kept apart from: what works on a store works here.
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/runs/orders.jsonl"
    );
    let appended = onward(&["state", "append", runs])
        .env("ONWARD_SERVER", server.url())
        .output()
        .unwrap();
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    let metrics = server.ask("GET /metrics", "", "").body;
    for line in [
        "onward_http_request_seconds_count",
        "onward_in_doubt_total 0",
        "# HELP onward_in_doubt_total ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let document = server.ask("GET /openapi.json", "", "").json();
    assert!(document["paths"]["/v1/executions"]["post"].is_object());
    assert!(folder.path().join(".onward/onward.db").exists());
}

#[test]
fn settings_come_from_the_file_the_environment_and_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onward.toml");
    std::fs::write(
        &file,
        "store = \"postgres://me:secret@db/onward\"\nlease-ms = 7000\nlisten = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    let show = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = onward(
            &[
                &["config", "show", "--config", file.to_str().unwrap()],
                args,
            ]
            .concat(),
        );
        command.envs(environment.iter().copied()).output().unwrap()
    };
    let output = show(
        &["--json", "--listen", "127.0.0.1:3"],
        &[
            ("ONWARD_LISTEN", "127.0.0.1:2"),
            ("ONWARD_LEASE_MS", "8000"),
        ],
    );
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        shown["listen"],
        json!({ "value": "127.0.0.1:3", "from": "command-line" })
    );
    assert_eq!(
        shown["lease-ms"],
        json!({ "value": 8000, "from": "environment" })
    );
    assert_eq!(
        shown["store"],
        json!({ "value": "postgres://me:***@db/onward", "from": "file" })
    );
    assert_eq!(
        shown["tls-in-front"],
        json!({ "value": false, "from": "usual" })
    );
    assert!(!text(&show(&[], &[]).stdout).contains("secret"));
    let wrong = show(&[], &[("ONWARD_LISTEN", "nowhere")]);
    assert!(
        text(&wrong.stderr).contains("ONWARD_LISTEN makes no sense"),
        "{}",
        text(&wrong.stderr)
    );
    std::fs::write(&file, "lissten = \"127.0.0.1:1\"\n").unwrap();
    let wrong = show(&[], &[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("unknown field `lissten`"),
        "{}",
        text(&wrong.stderr)
    );
}
