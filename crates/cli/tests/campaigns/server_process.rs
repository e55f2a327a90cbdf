//! A server process that sends the campaigns of a store, and the command line as its client.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use onward_api::client::{ApiClient, ClientConfig};
use serde_json::Value;

use crate::text;

pub(crate) fn onward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onward"));
    command
        .args(args)
        .env_remove("CLICOLOR_FORCE")
        .env_remove("NO_COLOR")
        .env_remove("ONWARD_STORE")
        .env_remove("ONWARD_SERVER");
    command
}

/// A server process, killed on drop if it still runs.
pub(crate) struct ServerProcess {
    child: Child,
    address: OnceLock<String>,
    /// Receives the listen address once.
    ready: Mutex<mpsc::Receiver<String>>,
    token: String,
    /// Lines on standard error, printed if the test fails.
    log: Arc<Mutex<Vec<String>>>,
}

impl ServerProcess {
    /// Starts a process. Requests wait until it listens.
    pub(crate) fn start(command: &mut Command, token: &str) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (announce, ready) = mpsc::channel();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        // Reads to the end: a full pipe would block the process.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("http://") {
                    drop(announce.send(rest.split([',', ' ']).next().unwrap().to_owned()));
                }
                kept.lock().unwrap().push(line);
            }
        });
        Self {
            child,
            address: OnceLock::new(),
            ready: Mutex::new(ready),
            token: token.to_owned(),
            log,
        }
    }

    pub(crate) fn url(&self) -> String {
        let address = self.address.get_or_init(|| {
            self.ready
                .lock()
                .unwrap()
                .recv()
                .expect("the server prints its address")
        });
        format!("http://{address}")
    }

    pub(crate) fn client(&self) -> ApiClient {
        ApiClient::new(&ClientConfig {
            url: self.url(),
            token: Some(self.token.clone()),
            scope: None,
        })
        .unwrap()
    }

    /// Runs a command against this server.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = onward(args);
        command
            .env("ONWARD_SERVER", self.url())
            .env("ONWARD_TOKEN", &self.token);
        command.output().unwrap()
    }

    /// Like [`run`](Self::run), for a command that must succeed. Returns its standard output.
    pub(crate) fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout).to_owned()
    }

    /// Like [`run_ok`](Self::run_ok), with `--json` for one object.
    pub(crate) fn run_json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run_ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Deploys a campaign and returns the id of its run.
    pub(crate) fn deploy(&self, file: &Path, args: &[&str]) -> String {
        let deployed = self.run_json(
            &[
                &["campaign", "deploy", file.to_str().unwrap(), "--by", "ada"],
                args,
            ]
            .concat(),
        );
        deployed["run"].as_str().unwrap().to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(
            self.child.wait().unwrap().code(),
            None,
            "the process ran until it was killed"
        );
    }

    /// Shuts the process down gracefully.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!(
                "standard error of a node:\n{}",
                self.log.lock().unwrap().join("\n")
            );
        }
    }
}
