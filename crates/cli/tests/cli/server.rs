//! The HTTP API of `onward serve`, and the commands that use it: the same output as on the store
//! itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use onward_testing::RunEventGenerator;
use serde_json::{Value, json};

use crate::work::Place;
use crate::{fed, onward, state, text};

/// A server that is stopped in the end.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
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
        // The server blocks when the pipe is full: keep reading.
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

    /// The code of a problem response (`application/problem+json`).
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

pub(crate) fn started(place: &Place, args: &[&str]) -> String {
    let output = place.run(&[&["start"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// The output of a command without the parts in brackets: ages depend on the time of the call.
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

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
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
