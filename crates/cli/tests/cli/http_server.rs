//! The HTTP API of `onward serve`, and the commands that use it: they print the same as on the
//! store.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use onward_testing::RunEventGenerator;
use serde_json::{Value, json};

use crate::workflows::WorkflowStoreFixture;
use crate::{onward, run_with_input, state_commands, text};

/// A server, killed on drop.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts a server on the store.
    pub(crate) fn start(fixture: &WorkflowStoreFixture, args: &[&str]) -> Self {
        let mut command = fixture.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
        Self::spawn(&mut command)
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::try_spawn(command).expect("the server prints its address")
    }

    /// Returns `None` if the process ends before it serves.
    pub(crate) fn try_spawn(command: &mut Command) -> Option<Self> {
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
        let Some(address) = address else {
            child.wait().unwrap();
            return None;
        };
        // A full pipe would block the server, so reading continues.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, address })
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

    /// Returns a command that uses this server.
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

    pub(crate) fn send_request(&self, request: &str, token: &str, body: &str) -> HttpResponse {
        self.send_request_with(request, token, "content-type: application/json\r\n", body)
    }

    pub(crate) fn send_request_with(
        &self,
        request: &str,
        token: &str,
        headers: &str,
        body: &str,
    ) -> HttpResponse {
        let bearer = if token.is_empty() {
            String::new()
        } else {
            format!("authorization: Bearer {token}\r\n")
        };
        let length = body.len();
        self.send_raw(&format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{bearer}{headers}content-length: {length}\r\n\r\n{body}"
        ))
    }

    /// Sends these bytes and reads the response up to the end of the connection.
    pub(crate) fn send_raw(&self, request: &str) -> HttpResponse {
        let mut stream = self.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        HttpResponse {
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

pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
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

pub(crate) fn create_token(fixture: &WorkflowStoreFixture, role: &str, args: &[&str]) -> String {
    let name = format!("{role} {}", args.join(" "));
    let output = fixture.run(&[&["token", "create", &name, "--role", role], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

pub(crate) fn start_workflow(fixture: &WorkflowStoreFixture, args: &[&str]) -> String {
    let output = fixture.run(&[&["start"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// The output of a command without the parts in brackets: ages depend on the time of the command.
fn without_ages(printed: &[u8]) -> String {
    let printed = text(printed);
    let after_bracket = |part: &str| {
        part.split_once(')')
            .map_or(part, |(_, rest)| rest)
            .to_owned()
    };
    printed
        .split('(')
        .enumerate()
        .map(|(i, part)| {
            if i == 0 {
                part.to_owned()
            } else {
                after_bracket(part)
            }
        })
        .collect()
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn commands_print_the_same_for_a_store_and_its_server() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let admin = create_token(&fixture, "admin", &[]);
        let chain = start_workflow(
            &fixture,
            &["chain", "{\"steps\":3}", "--key", "a", "--wait"],
        );
        assert_eq!(chain, "3");
        let waiting = start_workflow(
            &fixture,
            &["blocking_signal", "{\"order\":7}", "--key", "b"],
        );
        let server = Server::start(&fixture, &[]);
        // Waits until the execution is blocked, so that it does not change during the comparison.
        while !text(&server.run(&admin, &["ls", "--state", "blocked"]).stdout)
            .contains(&waiting[..12])
        {}
        let chain = start_workflow(&fixture, &["chain", "{\"steps\":3}", "--key", "a"]);
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
            let (from_store, from_server) = (fixture.run(args), server.run(&admin, args));
            assert_eq!(
                from_store.status.code(),
                from_server.status.code(),
                "{args:?}: {}",
                text(&from_server.stderr)
            );
            assert_eq!(
                without_ages(&from_store.stdout),
                without_ages(&from_server.stdout),
                "{args:?}"
            );
            assert_eq!(
                without_ages(&from_store.stderr),
                without_ages(&from_server.stderr),
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
            let (from_store, from_server) = (fixture.run(args), server.run(&admin, args));
            assert_eq!(
                (from_store.status.code(), from_server.status.code()),
                (Some(0), Some(0)),
                "{}",
                text(&from_server.stderr)
            );
            assert_eq!(
                text(&from_store.stdout),
                text(&from_server.stdout),
                "{args:?}"
            );
        }
        let result = server.run(&admin, &["start", "chain", "{\"steps\":7}", "--wait"]);
        assert_eq!(text(&result.stdout), "7\n", "{}", text(&result.stderr));
    }
}

#[test]
fn run_events_are_appended_and_read_through_a_server() {
    let fixture = WorkflowStoreFixture::sqlite();
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
    let engineer = create_token(&fixture, "engineer", &scope);
    let other_tenant = create_token(&fixture, "engineer", &["--tenant", "other-tenant"]);
    let server = Server::start(&fixture, &[]);

    let appended = run_with_input(
        server.command(&engineer, &["state", "append", "-"]),
        state_commands::lines(&events).as_bytes(),
    );
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    assert_eq!(text(&appended.stdout).lines().count(), 50);
    let (from_store, from_server) = (
        fixture.run(&["state", "events", &run]),
        server.run(&engineer, &["state", "events", &run]),
    );
    assert_eq!(text(&from_store.stdout), text(&from_server.stdout));
    assert_eq!(text(&from_store.stdout).lines().count(), 50);
    let page = server
        .send_request(
            &format!("GET /v1/runs/{run}/events?after=48&waitMs=1000"),
            &engineer,
            "",
        )
        .json();
    assert_eq!(
        (page["events"].as_array().unwrap().len(), &page["watermark"]),
        (2, &json!(50))
    );
    let snapshot = server.run(&engineer, &["state", "snapshot", &run, "--from-log"]);
    assert_eq!(
        snapshot.status.code(),
        Some(0),
        "{}",
        text(&snapshot.stderr)
    );

    let refused = run_with_input(
        server.command(&other_tenant, &["state", "append", "-"]),
        state_commands::lines(&events[..1]).as_bytes(),
    );
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert_eq!(
        server
            .send_request(&format!("GET /v1/runs/{run}/events"), &other_tenant, "")
            .code(),
        "no_run"
    );
    assert_eq!(
        server
            .send_request(&format!("GET /v1/runs/{run}/snapshot"), &other_tenant, "")
            .code(),
        "no_run"
    );
}

/// What the OpenAPI document allows is what the server accepts.
#[test]
fn requests_outside_of_their_documented_limits_are_refused() {
    let fixture = WorkflowStoreFixture::sqlite();
    let scope = [
        "--tenant",
        "tenant-1",
        "--project",
        "analytics",
        "--environment",
        "production",
    ];
    let admin = create_token(&fixture, "admin", &scope);
    let server = Server::start(&fixture, &[]);
    let send = |request: &str, body: &str| server.send_request(request, &admin, body);
    let events = RunEventGenerator::new("limits").next_events(1);
    let run = events[0].run_id.to_string();
    let event = events[0].to_json();
    let body = format!("{{\"events\":[{event}]}}");
    assert_eq!(send("POST /v1/run-events", &body).status, 200);
    for limit in ["0", "1001"] {
        let path = format!("GET /v1/runs/{run}/events?limit={limit}");
        assert_eq!(send(&path, "").code(), "invalid_request", "{limit}");
    }
    for limit in ["1", "1000"] {
        let path = format!("GET /v1/runs/{run}/events?limit={limit}");
        assert_eq!(send(&path, "").status, 200, "{limit}");
    }
    let many = vec![event.as_str(); 10_001].join(",");
    let refused = send("POST /v1/run-events", &format!("{{\"events\":[{many}]}}"));
    assert_eq!(refused.code(), "unprocessable");
}

#[test]
fn an_invalid_request_is_answered_with_a_problem_document() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let code = |request: &str, body: &str| server.send_request(request, &admin, body).code();
    assert_eq!(code("GET /nowhere", ""), "not_found");
    assert_eq!(code("PUT /v1/executions", ""), "method_not_allowed");
    assert_eq!(code("POST /v1/executions", "{"), "invalid_request");
    assert_eq!(code("POST /v1/executions", "{}"), "unprocessable");
    assert_eq!(
        code("POST /v1/executions", r#"{"function":"chain","colour":1}"#),
        "unprocessable"
    );
    assert_eq!(
        code("POST /v1/executions", r#"{"function":"nothing"}"#),
        "no_function"
    );
    assert_eq!(
        code("POST /v1/executions", r#"{"function":"step"}"#),
        "not_a_workflow"
    );
    assert_eq!(code("GET /v1/executions?limit=many", ""), "invalid_request");
    assert_eq!(code("GET /v1/executions?colour=red", ""), "invalid_request");
    assert_eq!(code("GET /v1/executions?after=x", ""), "invalid_request");
    assert_eq!(code("GET /v1/executions/%ff", ""), "invalid_request");
    let large = format!(
        r#"{{"function":"chain","input":"{}"}}"#,
        "x".repeat(1_100_000)
    );
    assert_eq!(code("POST /v1/executions", &large), "too_large");
    let huge = "x".repeat(2_200_000);
    assert_eq!(code("POST /v1/executions", &huge), "too_large");
    let plain = server.send_request_with(
        "POST /v1/executions",
        &admin,
        "content-type: text/plain\r\n",
        "{}",
    );
    assert_eq!(plain.code(), "unsupported_media_type");
    let unknown = server.send_request("GET /v1/executions", "", "");
    assert!(
        unknown.head.contains("www-authenticate: bearer"),
        "{}",
        unknown.head
    );
}

#[test]
fn a_start_is_idempotent_over_http() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let body = r#"{"function":"chain","input":{"steps":2},"waitMs":30000}"#;
    let headers = "content-type: application/json\r\nidempotency-key: k-1\r\n";
    let first = server.send_request_with("POST /v1/executions", &admin, headers, body);
    let second = server.send_request_with("POST /v1/executions", &admin, headers, body);
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
    let other = server.send_request_with(
        "POST /v1/executions",
        &admin,
        headers,
        &body.replace('2', "3"),
    );
    assert_eq!(other.code(), "key_taken");
}

#[test]
fn an_event_stream_can_be_resumed() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let started = server
        .send_request(
            "POST /v1/executions",
            &admin,
            r#"{"function":"chain","input":{"steps":2}}"#,
        )
        .json();
    let path = format!(
        "GET /v1/executions/{}/events",
        started["execution"].as_str().unwrap()
    );
    let stream = server.send_request_with(&path, &admin, "", "");
    assert!(
        stream.head.contains("content-type: text/event-stream"),
        "{}",
        stream.head
    );
    let ids = |response: &HttpResponse| -> Vec<u64> {
        response
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .map(|id| id.parse().unwrap())
            .collect()
    };
    let all = ids(&stream);
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    assert!(stream.body.contains("event: end"), "{}", stream.body);
    let rest = server.send_request_with(&path, &admin, "last-event-id: 3\r\n", "");
    assert_eq!(ids(&rest), all[4..]);
}

#[test]
fn requests_beyond_the_rate_limit_are_rejected_with_retry_after() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &["--requests-per-second", "3"]);
    let responses: Vec<HttpResponse> = (0..6)
        .map(|_| server.send_request("GET /v1/functions", &admin, ""))
        .collect();
    let refused = responses
        .iter()
        .find(|response| response.status == 429)
        .expect("six requests exceed a limit of three");
    assert_eq!(refused.code(), "rate_limited");
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(
        server.send_request("GET /healthz", "", "").body,
        "ok\n",
        "health checks are not limited"
    );
}
