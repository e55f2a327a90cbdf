//! A process that serves a store and sends its campaigns, and the command line in front of it.

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

/// A node, killed in the end if it is still there.
pub(crate) struct Node {
    child: Child,
    address: OnceLock<String>,
    /// Says where it listens, once.
    told: Mutex<mpsc::Receiver<String>>,
    token: String,
    /// What it has said, for whoever wants to know why a test fails.
    log: Arc<Mutex<Vec<String>>>,
}

impl Node {
    /// Starts a node. Whoever asks it something waits until it listens.
    pub(crate) fn begun(command: &mut Command, token: &str) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, told) = mpsc::channel();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        // To its end: a pipe that nobody reads stops whoever writes into it.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("http://") {
                    drop(tell.send(rest.split([',', ' ']).next().unwrap().to_owned()));
                }
                kept.lock().unwrap().push(line);
            }
        });
        Self {
            child,
            address: OnceLock::new(),
            told: Mutex::new(told),
            token: token.to_owned(),
            log,
        }
    }

    pub(crate) fn url(&self) -> String {
        let address = self.address.get_or_init(|| {
            self.told
                .lock()
                .unwrap()
                .recv()
                .expect("it says where it listens")
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

    /// Asks this node by the command line.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = onward(args);
        command
            .env("ONWARD_SERVER", self.url())
            .env("ONWARD_TOKEN", &self.token);
        command.output().unwrap()
    }

    /// The same, where it has to succeed. Returns what it says.
    pub(crate) fn say(&self, args: &[&str]) -> String {
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

    /// The same, where that is one thing.
    pub(crate) fn told(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.say(&[args, &["--json"]].concat())).unwrap()
    }

    /// Deploys a campaign; returns its run.
    pub(crate) fn deploy(&self, file: &Path, args: &[&str]) -> String {
        let deployed = self.told(
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

    /// kill -9, with nothing said before.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(
            self.child.wait().unwrap().code(),
            None,
            "it was there to be killed"
        );
    }

    /// Lets it end in order.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("a node said:\n{}", self.log.lock().unwrap().join("\n"));
        }
    }
}
