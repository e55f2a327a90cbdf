//! Workflows from the command line: real components, real processes, real kills.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use onward_testing::PostgresCluster;
use serde_json::Value;
use tempfile::TempDir;

use crate::{onward, text};

/// A store with a component in it.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self {
            folder,
            url,
            _cluster: None,
        }
        .deployed()
    }

    pub(crate) fn postgres() -> Self {
        Self::on(PostgresCluster::shared_cluster().unwrap())
    }

    pub(crate) fn on(cluster: Arc<PostgresCluster>) -> Self {
        let url = cluster.create_database().unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            url,
            _cluster: Some(cluster),
        }
        .deployed()
    }

    fn deployed(self) -> Self {
        let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples/workflows/built/journals.wasm");
        let output = self
            .command(&["deploy", built.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("workflow  full_example\n"));
        self
    }

    /// Compiled code is kept beside the other tests'.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = onward(args);
        let cache = std::env::temp_dir().join("onward-test-cache");
        command
            .env("ONWARD_STORE", &self.url)
            .env("ONWARD_CACHE", cache)
            .current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What a workflow returns.
    pub(crate) fn result(&self, function: &str, input: &str) -> Value {
        let output = self.run(&["start", function, input, "--wait", "--json"]);
        assert!(
            !output.stdout.is_empty(),
            "{function}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn events(&self, execution: &str) -> Vec<Value> {
        let output = self.run(&["journal", "show", execution]);
        text(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[test]
fn every_kind_of_workflow_comes_to_its_end() {
    let place = Place::sqlite();
    assert_eq!(
        place.result("echo", "{\"a\":[1,2]}")["result"],
        serde_json::json!({"a": [1, 2]})
    );
    assert_eq!(
        place.result("chain", "{\"steps\":20,\"work\":10}")["result"],
        20
    );
    assert_eq!(place.result("counter", "5")["result"], 0);
    assert!(place.result("parent", "3")["result"].is_number());
    let broken = place.result("trap", "null");
    assert_eq!(broken["error"]["kind"], "trap");
    assert!(
        broken["error"]["message"]
            .as_str()
            .unwrap()
            .contains("this function is broken")
    );
    let listed = place.run(&["ls", "--json", "--state", "failed"]);
    assert_eq!(text(&listed.stdout).lines().count(), 1);
}

#[test]
fn a_key_starts_one_execution() {
    let place = Place::sqlite();
    let start = || place.run(&["start", "echo", "1", "--key", "order-42", "--json"]);
    let report = |output: Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    let (first, again) = (report(start()), report(start()));
    assert_eq!(first["execution"], again["execution"]);
    assert_eq!(
        (&first["existed"], &again["existed"]),
        (&Value::Bool(false), &Value::Bool(true))
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = Place::sqlite();
    let file = place.folder.path().join("no.wasm");
    std::fs::write(&file, b"\0asm nothing").unwrap();
    for (args, words) in [
        (&["start", "nothing"][..], "there is no function nothing"),
        (&["start", "fetch_user", "1"], "fetch_user is a task"),
        (&["start", "echo", "{"], "not JSON"),
        (&["show", "zz"], "is not the id of an execution"),
        (&["show", "abcd"], "there is no execution abcd"),
        (&["signal", "abcd", "go"], "there is no execution abcd"),
        (&["deploy", "absent.wasm"], "cannot read absent.wasm"),
        (&["deploy", "no.wasm"], "no.wasm cannot be deployed"),
    ] {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains(words),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_signal_from_another_process_arrives() {
    for place in [Place::sqlite(), Place::postgres()] {
        let started = place.run(&["start", "blocking_signal", "{\"order\":7}", "--key", "one"]);
        let execution = text(&started.stdout).trim().to_owned();
        let mut waiting = place.command(&[
            "start",
            "blocking_signal",
            "{\"order\":7}",
            "--key",
            "one",
            "--wait",
        ]);
        let waiting = waiting
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let sent = place.run(&[
            "signal",
            &execution,
            "user_approval",
            "{\"approved\":true}",
            "--key",
            "first",
        ]);
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(kinds(&place.events(&execution)).contains(&"SignalReceived"));
    }
}

#[test]
fn a_workflow_that_is_cancelled_cleans_up() {
    let place = Place::sqlite();
    let started = place.run(&["start", "saga", "null", "--key", "one"]);
    let execution = text(&started.stdout).trim().to_owned();
    assert_eq!(
        place
            .run(&["cancel", &execution, "--reason", "enough"])
            .status
            .code(),
        Some(0)
    );
    let output = place.run(&["start", "saga", "null", "--key", "one", "--wait"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let events = place.events(&execution);
    assert_eq!(*kinds(&events).last().unwrap(), "ExecutionCancelled");
    let over = place.run(&["cancel", &execution]);
    assert!(
        text(&over.stderr).contains("is over"),
        "{}",
        text(&over.stderr)
    );
}

/// Kills the process that runs a chain again and again, each time when it has come a little
/// further.
fn killed(place: &Place, kills: usize) {
    let args = [
        "start",
        "chain",
        "{\"steps\":3000,\"work\":10}",
        "--key",
        "killed",
    ];
    let started = place.run(&args);
    let execution = text(&started.stdout).trim().to_owned();
    let args = [&args[..], &["--wait"]].concat();
    let mut killed = 0;
    for round in 0..kills {
        let further = place.events(&execution).len() + 1 + round * 7 % 20;
        let mut child = place
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while place.events(&execution).len() < further && child.try_wait().unwrap().is_none() {}
        child.kill().unwrap();
        killed += usize::from(child.wait().unwrap().code().is_none());
    }
    assert!(
        killed > kills / 2,
        "only {killed} of {kills} kills came in time"
    );
    let output = place.run(&args);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "3000\n"),
        "{}",
        text(&output.stderr)
    );
    let events = place.events(&execution);
    let completed = kinds(&events)
        .iter()
        .filter(|kind| **kind == "InvokeCompleted")
        .count();
    assert_eq!(completed, 3_000, "every step is recorded once");
}

#[test]
fn a_chain_survives_kills_on_sqlite() {
    killed(&Place::sqlite(), 4);
}

#[test]
fn a_chain_survives_kills_on_postgres() {
    killed(&Place::postgres(), 3);
}

#[test]
fn the_demonstration_shows_what_it_says() {
    let place = Place::sqlite();
    let folder = place.folder.path().join("demo");
    let output = place.run(&["demo", "--folder", folder.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}{}",
        text(&output.stderr)
    );
    for words in [
        "is killed with SIGKILL",
        "died here",
        "recorded once each: reserve_stock 1×, send_email 1×, send_sms 1×",
        "300 people reached once each: the provider was called twice for 0; completed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let again = place.run(&["demo", "--folder", folder.to_str().unwrap()]);
    assert!(
        text(&again.stderr).contains("give another folder"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn a_worker_that_is_asked_to_stop_gives_its_shards_up() {
    let place = Place::sqlite();
    let started = place.run(&["start", "echo", "1"]);
    let execution = text(&started.stdout).trim().to_owned();
    let mut worker = place
        .command(&["node"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !kinds(&place.events(&execution)).contains(&"ExecutionCompleted") {
        assert_eq!(
            worker.try_wait().unwrap(),
            None,
            "it works until it is stopped"
        );
    }
    assert!(
        Command::new("kill")
            .args(["-TERM", &worker.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    let why = place.run(&["start", "blocking_signal", "{\"order\":7}"]);
    let explained = place.run(&["why", text(&why.stdout).trim()]);
    assert!(
        text(&explained.stdout).contains("no process works on this store"),
        "{}",
        text(&explained.stdout)
    );
}

#[test]
fn only_a_deployment_makes_a_store() {
    let place = Place::sqlite();
    let absent = place.folder.path().join("absent.db");
    for args in [
        &["start", "echo"][..],
        &["signal", "abcd", "go"],
        &["cancel", "abcd"],
        &["ls"],
        &["doctor"],
    ] {
        let output = place
            .command(args)
            .env("ONWARD_STORE", format!("sqlite:{}", absent.display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains("there is no store"),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
    assert!(!absent.exists());
}

/// A file that may not grow any further stands for a disk that is full.
#[test]
fn a_worker_whose_store_fails_ends_and_says_so() {
    let place = Place::sqlite();
    for _ in 0..20 {
        place.run(&["start", "chain", "{\"steps\": 50}"]);
    }
    let store = place.folder.path().join("store.db");
    let blocks = store.metadata().unwrap().len() / 512 + 1;
    let limited = place.command(&["node"]);
    let mut worker = Command::new("sh");
    worker.args([
        "-c",
        "trap '' XFSZ; ulimit -f \"$1\"; exec \"$2\" worker",
        "sh",
        &blocks.to_string(),
    ]);
    worker
        .arg(limited.get_program())
        .current_dir(place.folder.path());
    worker.envs(
        limited
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = worker.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("error: "), "{said}");
    // Nothing that was acknowledged is lost, and with room everything goes on.
    let doctor = place.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor.stdout));
    assert_eq!(
        place.result("chain", "{\"steps\": 1}")["result"],
        Value::from(1)
    );
}
