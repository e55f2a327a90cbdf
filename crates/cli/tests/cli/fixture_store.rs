//! Fills a store with work of every kind. The fixture stores of earlier schemas hold this work, and
//! a test of the current schema expects the same of it.
//!
//! `ONWARD_WRITE_FIXTURES=1 cargo nextest run -p onward --test cli current_schema` writes the
//! fixtures of the current schema. Do so before a schema changes, with the build before the change.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use crate::http_server::Server;
use crate::workflow_kills::{POLL_INTERVAL, TIMEOUT};
use crate::{onward, text};

/// Input of the execution that [`crate::old_stores`] continues.
pub(crate) const ORDER: &str = r#"{"customer":"Ada","item":"lamp","quantity":2}"#;
/// The only recipient whose first message is answered.
const ANSWERED_RECIPIENT: &str = "+4930000004";
const SUPPRESSED_RECIPIENT: &str = "+4930000003";
/// Messages whose requests are in progress at the kill: they are in doubt afterwards.
const HELD_MESSAGES: usize = 4;

/// Writes the work of a fixture to a store that does not exist yet.
pub(crate) fn write_store(url: &str, folder: &Path) {
    let store = NewStore { url, folder };
    store.write_executions();
    store.write_run_events();
    store.run(&["token", "create", "ops", "--role", "admin"]);
    store.run(&[
        "campaign",
        "suppress",
        "add",
        SUPPRESSED_RECIPIENT,
        "--channel",
        "voice",
    ]);
    store.write_campaign_runs();
}

struct NewStore<'a> {
    url: &'a str,
    folder: &'a Path,
}

impl NewStore<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = onward(args);
        command
            .env("ONWARD_STORE", self.url)
            .env("ONWARD_CAMPAIGN_LEASE_MS", "500")
            .current_dir(self.folder);
        command
    }

    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout).to_owned()
    }

    /// A completed, a cancelled, a blocked and an unstarted execution, and one whose task waits for
    /// a worker.
    fn write_executions(&self) {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows/built");
        for component in ["orders.wasm", "remote.wasm"] {
            self.run(&["deploy", built.join(component).to_str().unwrap()]);
        }
        let mut node = self.command(&["node"]);
        let mut node = node
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for key in ["completed", "cancelled", "waits-for-approval"] {
            self.run(&["start", "order", ORDER, "--key", key]);
        }
        let task = r#"{"task":"resize_image","input":{"width":640}}"#;
        self.run(&["start", "relay", task, "--key", "waits-for-worker"]);
        let approval = r#"{"approved":true,"by":"Ada"}"#;
        self.run(&["signal", &self.execution("completed"), "approval", approval]);
        self.run(&["cancel", &self.execution("cancelled")]);
        for (key, state) in [
            ("completed", "Completed"),
            ("cancelled", "Cancelled"),
            ("waits-for-approval", "Blocked"),
            ("waits-for-worker", "Blocked"),
        ] {
            self.wait_for_state(key, state);
        }
        node.kill().unwrap();
        node.wait().unwrap();
        self.run(&["start", "order", ORDER, "--key", "unstarted"]);
    }

    fn list_executions(&self) -> Vec<serde_json::Value> {
        let lines = self.run(&["ls", "--json"]);
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn execution(&self, key: &str) -> String {
        let executions = self.list_executions();
        let found = executions.iter().find(|execution| execution["key"] == key);
        found.unwrap()["execution"].as_str().unwrap().to_owned()
    }

    /// The order reads a signal a second after its start, so its state is polled until it is due.
    fn wait_for_state(&self, key: &str, state: &str) {
        let is_due =
            |execution: &serde_json::Value| execution["key"] == key && execution["state"] == state;
        wait_until(&format!("the execution {key} is {state}"), || {
            self.list_executions().iter().any(is_due)
        });
        if key == "waits-for-approval" {
            let execution = self.execution(key);
            wait_until("the execution awaits the signal approval", || {
                self.run(&["why", &execution]).contains("approval")
            });
        }
    }

    fn write_run_events(&self) {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/runs/orders.jsonl");
        self.run(&["state", "append", events.to_str().unwrap()]);
    }

    /// A paused campaign run of six recipients, and one whose server was killed during four sends.
    fn write_campaign_runs(&self) {
        let (seen, requests) = mpsc::channel();
        let port = start_holding_service(seen);
        let config = write_config(self.folder, port);
        let serve = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--config",
            config.to_str().unwrap(),
        ];
        let mut server = Server::spawn(&mut self.command(&serve));
        let people: String = (1..=6)
            .map(|number| format!("{number},+493000000{number},Person {number}\n"))
            .collect();
        fs::write(
            self.folder.join("people.csv"),
            format!("id,phone,name\n{people}"),
        )
        .unwrap();
        let interrupted = self.deploy_campaign("reminders");
        wait_for_requests(&requests);
        let sent = ["outbox", "ls", &interrupted, "--state", "sent", "--json"];
        wait_until("one item is sent", || self.run(&sent).lines().count() == 1);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        // No server sends between the deployment and the pause.
        let paused = self.deploy_campaign("later");
        self.run(&["campaign", "pause", &paused]);
        // The next server finds the expired leases.
        let _server = Server::spawn(&mut self.command(&serve));
        let in_doubt = ["outbox", "in-doubt", "--json"];
        wait_until("all held messages are in doubt", || {
            self.run(&in_doubt).lines().count() == HELD_MESSAGES
        });
    }

    fn deploy_campaign(&self, name: &str) -> String {
        let file = self.folder.join(format!("{name}.yaml"));
        let campaign = format!(
            "campaign: {name}\nchannel: voice\nprovider: service\njob_size: 2\n\
             audience: {{ file: people.csv }}\ntemplate: {{ script: \"Hello {{{{ name }}}}.\" }}\n"
        );
        fs::write(&file, campaign).unwrap();
        let printed = self.run(&["campaign", "deploy", file.to_str().unwrap()]);
        printed.lines().next().unwrap().to_owned()
    }
}

/// Polls until the condition holds.
///
/// # Panics
///
/// If the condition does not hold within [`TIMEOUT`]; the message is `expected`.
#[expect(
    clippy::disallowed_methods,
    reason = "the state of another process causes no event here"
)]
fn wait_until(expected: &str, mut is_met: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_met() {
        assert!(since.elapsed() < TIMEOUT, "timed out: {expected}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Writes a configuration file with the provider `service`, an HTTP service on this port.
pub(crate) fn write_config(folder: &Path, port: u16) -> PathBuf {
    let config = folder.join("onward.toml");
    let provider = format!(
        "[providers.service.http]\nurl = \"http://127.0.0.1:{port}/\"\nbody = '{{\"to\": {{{{ to }}}}}}'\n"
    );
    fs::write(&config, provider).unwrap();
    config
}

/// Reads until the requests of all messages but the suppressed one have arrived.
fn wait_for_requests(requests: &Receiver<String>) {
    let arrived: Vec<String> = (0..=HELD_MESSAGES)
        .map(|_| requests.recv_timeout(TIMEOUT).unwrap())
        .collect();
    assert!(arrived.iter().any(|body| body.contains(ANSWERED_RECIPIENT)));
}

/// Starts an HTTP service that answers one recipient's request only. Returns its port.
fn start_holding_service(seen: Sender<String>) -> u16 {
    start_service(move |body, stream| {
        if body.contains(ANSWERED_RECIPIENT) {
            accept_request(stream);
        }
        drop(seen.send(body));
    })
}

/// Starts an HTTP service that accepts every request. Returns its port.
pub(crate) fn start_accepting_service() -> u16 {
    start_service(|_, stream| accept_request(stream))
}

fn accept_request(stream: &mut TcpStream) {
    drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
}

fn start_service(handle: impl Fn(String, &mut TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = handle.clone();
            thread::spawn(move || read_requests(stream, handle));
        }
    });
    port
}

fn read_requests(stream: TcpStream, handle: impl Fn(String, &mut TcpStream)) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if line.is_empty() || reader.read_exact(&mut body).is_err() {
            return;
        }
        handle(String::from_utf8(body).unwrap(), reader.get_mut());
    }
}
