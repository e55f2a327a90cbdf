//! Power cuts of a server under load: every request that it acknowledged has its effect.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use onward_testing::{PowerCutDisk, RunEventGenerator};
use serde_json::{Value, json};

use crate::http_server::{Server, create_token};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Number of power cuts; `ONWARD_SERVER_POWER_CUTS` overrides it, and `ONWARD_FIRST_SEED` selects
/// others.
const CUTS: u64 = 300;

/// Cuts before the store is verified and a new one is created.
const CUTS_PER_STORE: u64 = 30;

/// Last write or sync of the server at which its power is cut.
const LAST_STEP: u64 = 900;

/// What the servers of one store acknowledged.
#[derive(Default)]
struct RequestLedger {
    /// Executions by their idempotency key.
    started: BTreeMap<String, String>,
    /// Executions that received a signal.
    signalled: BTreeSet<String>,
    /// Sequence of each run event, by run and event id.
    appended: BTreeMap<(String, String), u64>,
}

/// A client that sends requests to one server until it dies.
struct LoadClient<'a> {
    address: &'a str,
    ledger: &'a Mutex<RequestLedger>,
    names: &'a AtomicU64,
}

#[test]
fn no_acknowledged_request_is_lost_in_a_power_cut_of_the_server() {
    let number = |name: &str| std::env::var(name).map(|number| number.parse().unwrap());
    let cuts = number("ONWARD_SERVER_POWER_CUTS").unwrap_or(CUTS);
    let first_seed = number("ONWARD_FIRST_SEED").unwrap_or(0);
    let (mut started, mut signalled, mut appended) = (0, 0, 0);
    let mut cut = 0;
    while cut < cuts {
        let disk = PowerCutDisk::new();
        let fixture = WorkflowStoreFixture::sqlite_in(&disk.path());
        let tokens = LoadTokens::create(&fixture);
        let ledger = Mutex::new(RequestLedger::default());
        for _ in 0..CUTS_PER_STORE {
            run_until_the_power_is_cut(&fixture, &disk, &tokens, &ledger, first_seed + cut);
            cut += 1;
        }
        let ledger = ledger.into_inner().unwrap();
        ledger.verify(&fixture, &tokens);
        started += ledger.started.len();
        signalled += ledger.signalled.len();
        appended += ledger.appended.len();
    }
    println!("{cut} cuts, {started} starts, {signalled} signals, {appended} appends, 0 lost");
    let expected = usize::try_from(cuts).unwrap();
    assert!(started > expected && signalled > expected && appended > expected);
}

/// Tokens of the scope with the workflows, and of the scope of generated run events.
struct LoadTokens {
    workflows: String,
    run_events: String,
}

impl LoadTokens {
    fn create(fixture: &WorkflowStoreFixture) -> Self {
        let scope = ["--tenant", "tenant-1", "--project", "analytics"];
        let scope = [&scope[..], &["--environment", "production"]].concat();
        Self {
            workflows: create_token(fixture, "admin", &[]),
            run_events: create_token(fixture, "engineer", &scope),
        }
    }
}

fn run_until_the_power_is_cut(
    fixture: &WorkflowStoreFixture,
    disk: &PowerCutDisk,
    tokens: &LoadTokens,
    ledger: &Mutex<RequestLedger>,
    seed: u64,
) {
    let mut command = fixture.command(&["serve", "--listen", "127.0.0.1:0"]);
    let step = 1 + seed.wrapping_mul(7_919) % LAST_STEP;
    disk.cut_at(step, seed, &mut command);
    let Some(mut server) = Server::try_spawn(&mut command) else {
        return;
    };
    let names = AtomicU64::new(seed * 1_000_000);
    let client = &LoadClient {
        address: &server.address,
        ledger,
        names: &names,
    };
    thread::scope(|scope| {
        scope.spawn(move || while client.start_chain(&tokens.workflows).is_some() {});
        scope.spawn(move || while client.start_and_signal(&tokens.workflows).is_some() {});
        scope.spawn(move || while client.append_events(&tokens.run_events).is_some() {});
    });
    assert_eq!(
        server.child.wait().unwrap().code(),
        None,
        "the power was cut"
    );
}

impl LoadClient<'_> {
    fn unique_name(&self) -> String {
        format!("power-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    fn start(&self, token: &str, function: &str, input: &Value) -> Option<String> {
        let key = self.unique_name();
        let body = json!({"function": function, "input": input, "key": key});
        let response = post(self.address, "/v1/executions", token, &body)?;
        let execution = response["execution"].as_str().unwrap().to_owned();
        let mut ledger = self.ledger.lock().unwrap();
        ledger.started.insert(key, execution.clone());
        Some(execution)
    }

    fn start_chain(&self, token: &str) -> Option<()> {
        self.start(token, "chain", &json!({"steps": 4, "work": 1}))
            .map(drop)
    }

    fn start_and_signal(&self, token: &str) -> Option<()> {
        let execution = self.start(token, "blocking_signal", &json!({"order": 7}))?;
        let path = format!("/v1/executions/{execution}/signals");
        let signal = json!({"name": "user_approval", "payload": {"approved": true}, "key": "one"});
        post(self.address, &path, token, &signal)?;
        let mut ledger = self.ledger.lock().unwrap();
        ledger.signalled.insert(execution);
        Some(())
    }

    fn append_events(&self, token: &str) -> Option<()> {
        let events = RunEventGenerator::new(&self.unique_name()).next_events(5);
        let run = events[0].run_id.to_string();
        let events: Vec<Value> = events
            .iter()
            .map(|event| serde_json::from_str(&event.to_json()).unwrap())
            .collect();
        let response = post(
            self.address,
            "/v1/run-events",
            token,
            &json!({"events": events}),
        )?;
        let mut ledger = self.ledger.lock().unwrap();
        for result in response["results"].as_array().unwrap() {
            let id = result["eventId"].as_str().unwrap().to_owned();
            let sequence = result["runSeq"].as_u64().unwrap();
            ledger.appended.insert((run.clone(), id), sequence);
        }
        Some(())
    }
}

impl RequestLedger {
    /// Starts the server once more, without a power cut, and looks for the effect of every
    /// acknowledged request.
    fn verify(&self, fixture: &WorkflowStoreFixture, tokens: &LoadTokens) {
        {
            let server = Server::start(fixture, &[]);
            self.verify_executions(&server, &tokens.workflows);
            self.verify_run_events(&server, &tokens.run_events);
        }
        for check in [&["state", "verify"][..], &["doctor"]] {
            let output = fixture.run(check);
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{check:?}: {stdout}{stderr}");
        }
    }

    fn verify_executions(&self, server: &Server, token: &str) {
        for execution in self.started.values() {
            let signals = usize::from(self.signalled.contains(execution));
            let path = format!("GET /v1/executions/{execution}/result?waitMs=60000");
            if signals > 0 || !self.is_waiting_for_a_signal(server, token, execution) {
                let result = server.send_request(&path, token, "");
                assert_eq!(result.status, 200, "{execution}: {}", result.body);
            }
            let path = format!("GET /v1/executions/{execution}/journal");
            let journal = server.send_request(&path, token, "").body;
            let received = journal.matches("\"SignalReceived\"").count();
            assert!(received >= signals, "{execution}: {journal}");
        }
    }

    /// An execution whose signal was not acknowledged may wait for it for ever.
    fn is_waiting_for_a_signal(&self, server: &Server, token: &str, execution: &str) -> bool {
        let path = format!("GET /v1/executions/{execution}");
        let response = server.send_request(&path, token, "");
        assert_eq!(response.status, 200, "{execution}: {}", response.body);
        response.json()["function"] == "blocking_signal"
    }

    fn verify_run_events(&self, server: &Server, token: &str) {
        let runs: BTreeSet<&String> = self.appended.keys().map(|(run, _)| run).collect();
        for run in runs {
            let page = server.send_request(&format!("GET /v1/runs/{run}/events"), token, "");
            let page = page.json();
            let stored: BTreeMap<&str, u64> = page["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| {
                    let id = event["eventId"].as_str().unwrap();
                    (id, event["runSeq"].as_u64().unwrap())
                })
                .collect();
            let acknowledged = self.appended.iter().filter(|((of, _), _)| of == run);
            for ((_, id), sequence) in acknowledged {
                assert_eq!(stored.get(&**id), Some(sequence), "event {id} of {run}");
            }
        }
    }
}

/// Sends a request. `None` if the server did not acknowledge it.
fn post(address: &str, path: &str, token: &str, body: &Value) -> Option<Value> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n")?;
    let is_success = head.starts_with("HTTP/1.1 2");
    assert!(
        is_success || head.starts_with("HTTP/1.1 5"),
        "{head} {body}"
    );
    is_success
        .then(|| serde_json::from_str(body).ok())
        .flatten()
}
