//! Workflows from the command line, with compiled components, processes and kills.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use onward_testing::{ClusterDurability, PostgresCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::{onward, text};

/// A store with the example workflows deployed.
pub(crate) struct WorkflowStoreFixture {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl WorkflowStoreFixture {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        Self::new_sqlite(folder, &path)
    }

    /// The store is in another folder than the working directory of the commands.
    pub(crate) fn sqlite_in(path: &Path) -> Self {
        Self::new_sqlite(tempfile::tempdir().unwrap(), path)
    }

    fn new_sqlite(folder: TempDir, path: &Path) -> Self {
        let url = format!("sqlite:{}", path.join("store.db").display());
        Self {
            folder,
            url,
            _cluster: None,
        }
        .with_examples()
    }

    pub(crate) fn postgres() -> Self {
        Self::on_cluster(PostgresCluster::shared_cluster(ClusterDurability::Synced).unwrap())
    }

    pub(crate) fn on_cluster(cluster: Arc<PostgresCluster>) -> Self {
        let url = cluster.create_database().unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            url,
            _cluster: Some(cluster),
        }
        .with_examples()
    }

    fn with_examples(self) -> Self {
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

    /// Returns a command that uses this store, with the cache of compiled code that all tests
    /// share.
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

    /// Runs a workflow and returns the JSON object that the command prints.
    pub(crate) fn run_workflow(&self, function: &str, input: &str) -> Value {
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

fn event_kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[test]
fn workflows_of_every_kind_end() {
    let fixture = WorkflowStoreFixture::sqlite();
    assert_eq!(
        fixture.run_workflow("echo", "{\"a\":[1,2]}")["result"],
        serde_json::json!({"a": [1, 2]})
    );
    assert_eq!(
        fixture.run_workflow("chain", "{\"steps\":20,\"work\":10}")["result"],
        20
    );
    assert_eq!(fixture.run_workflow("counter", "5")["result"], 0);
    assert!(fixture.run_workflow("parent", "3")["result"].is_number());
    let broken = fixture.run_workflow("trap", "null");
    assert_eq!(broken["error"]["kind"], "trap");
    assert!(
        broken["error"]["message"]
            .as_str()
            .unwrap()
            .contains("this function is broken")
    );
    let listed = fixture.run(&["ls", "--json", "--state", "failed"]);
    assert_eq!(text(&listed.stdout).lines().count(), 1);
}

#[test]
fn a_key_starts_one_execution() {
    let fixture = WorkflowStoreFixture::sqlite();
    let start = || fixture.run(&["start", "echo", "1", "--key", "order-42", "--json"]);
    let report = |output: Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    let (first, again) = (report(start()), report(start()));
    assert_eq!(first["execution"], again["execution"]);
    assert_eq!(
        (&first["existed"], &again["existed"]),
        (&Value::Bool(false), &Value::Bool(true))
    );
}

#[test]
fn invalid_commands_are_reported() {
    let fixture = WorkflowStoreFixture::sqlite();
    let file = fixture.folder.path().join("no.wasm");
    std::fs::write(&file, b"\0asm nothing").unwrap();
    for (args, message) in [
        (&["start", "nothing"][..], "function nothing not found"),
        (&["start", "fetch_user", "1"], "fetch_user is a task"),
        (&["start", "echo", "{"], "invalid JSON"),
        (&["show", "zz"], "zz is not an execution id"),
        (&["show", "abcd"], "execution abcd… not found"),
        (&["signal", "abcd", "go"], "execution abcd… not found"),
        (&["deploy", "absent.wasm"], "cannot read absent.wasm"),
        (&["deploy", "no.wasm"], "cannot deploy no.wasm"),
    ] {
        let output = fixture.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains(message),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_signal_from_another_process_arrives() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let started = fixture.run(&["start", "blocking_signal", "{\"order\":7}", "--key", "one"]);
        let execution = text(&started.stdout).trim().to_owned();
        let mut waiting = fixture.command(&[
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
        let sent = fixture.run(&[
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
        assert!(event_kinds(&fixture.events(&execution)).contains(&"SignalReceived"));
    }
}

#[test]
fn a_cancelled_workflow_cleans_up() {
    let fixture = WorkflowStoreFixture::sqlite();
    let started = fixture.run(&["start", "saga", "null", "--key", "one"]);
    let execution = text(&started.stdout).trim().to_owned();
    assert_eq!(
        fixture
            .run(&["cancel", &execution, "--reason", "enough"])
            .status
            .code(),
        Some(0)
    );
    let output = fixture.run(&["start", "saga", "null", "--key", "one", "--wait"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let events = fixture.events(&execution);
    assert_eq!(*event_kinds(&events).last().unwrap(), "ExecutionCancelled");
    let ended = fixture.run(&["cancel", &execution]);
    assert!(
        text(&ended.stderr).contains("is over"),
        "{}",
        text(&ended.stderr)
    );
}

/// Kills the process that runs a chain repeatedly, each time after some progress. The chain needs
/// enough steps that the process is still running when each kill comes.
fn run_chain_through_kills(fixture: &WorkflowStoreFixture, steps: usize, kills: usize) {
    let input = format!("{{\"steps\":{steps},\"work\":10}}");
    let args = ["start", "chain", &input, "--key", "killed"];
    let started = fixture.run(&args);
    let execution = text(&started.stdout).trim().to_owned();
    let args = [&args[..], &["--wait"]].concat();
    let mut killed = 0;
    for round in 0..kills {
        let next_kill = fixture.events(&execution).len() + 1 + round * 7 % 20;
        let mut child = fixture
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while fixture.events(&execution).len() < next_kill && child.try_wait().unwrap().is_none() {}
        child.kill().unwrap();
        killed += usize::from(child.wait().unwrap().code().is_none());
    }
    assert!(
        killed > kills / 2,
        "only {killed} of {kills} processes were killed while they ran"
    );
    let output = fixture.run(&args);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), &*format!("{steps}\n")),
        "{}",
        text(&output.stderr)
    );
    let events = fixture.events(&execution);
    let completed = event_kinds(&events)
        .iter()
        .filter(|kind| **kind == "InvokeCompleted")
        .count();
    assert_eq!(completed, steps, "each step is recorded once");
}

#[test]
fn a_chain_survives_kills_on_sqlite() {
    run_chain_through_kills(&WorkflowStoreFixture::sqlite(), 10_000, 4);
}

#[test]
fn a_chain_survives_kills_on_postgres() {
    run_chain_through_kills(&WorkflowStoreFixture::postgres(), 3_000, 3);
}

#[test]
fn the_demo_completes_and_prints_its_steps() {
    let fixture = WorkflowStoreFixture::sqlite();
    let folder = fixture.folder.path().join("demo");
    let output = fixture.run(&["demo", "--folder", folder.to_str().unwrap()]);
    let printed = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{printed}{}",
        text(&output.stderr)
    );
    for expected in [
        "killed with SIGKILL after",
        "was killed here",
        "recorded once each: reserve_stock 1×, send_email 1×, send_sms 1×",
        "300 recipients reached once each: 0 with a repeated provider call; run completed",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let again = fixture.run(&["demo", "--folder", folder.to_str().unwrap()]);
    assert!(
        text(&again.stderr).contains("use --folder with another folder"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn a_stopped_node_releases_its_shards() {
    let fixture = WorkflowStoreFixture::sqlite();
    let started = fixture.run(&["start", "echo", "1"]);
    let execution = text(&started.stdout).trim().to_owned();
    let mut node = fixture
        .command(&["node"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !event_kinds(&fixture.events(&execution)).contains(&"ExecutionCompleted") {
        assert_eq!(
            node.try_wait().unwrap(),
            None,
            "the node runs until it is stopped"
        );
    }
    assert!(
        Command::new("kill")
            .args(["-TERM", &node.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(node.wait().unwrap().code(), Some(0));
    let why = fixture.run(&["start", "blocking_signal", "{\"order\":7}"]);
    let explained = fixture.run(&["why", text(&why.stdout).trim()]);
    assert!(
        text(&explained.stdout).contains("no process works on this store"),
        "{}",
        text(&explained.stdout)
    );
}

#[test]
fn only_deploy_creates_a_store() {
    let fixture = WorkflowStoreFixture::sqlite();
    let absent = fixture.folder.path().join("absent.db");
    for args in [
        &["start", "echo"][..],
        &["signal", "abcd", "go"],
        &["cancel", "abcd"],
        &["ls"],
        &["doctor"],
    ] {
        let output = fixture
            .command(args)
            .env("ONWARD_STORE", format!("sqlite:{}", absent.display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            text(&output.stderr).contains("no store found"),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
    assert!(!absent.exists());
}

/// A limit on the file size simulates a full disk.
#[test]
fn a_node_with_a_failed_store_exits_with_an_error() {
    let fixture = WorkflowStoreFixture::sqlite();
    for _ in 0..20 {
        fixture.run(&["start", "chain", "{\"steps\": 50}"]);
    }
    let store = fixture.folder.path().join("store.db");
    let blocks = store.metadata().unwrap().len() / 512 + 1;
    let limited = fixture.command(&["node"]);
    let mut node = Command::new("sh");
    node.args([
        "-c",
        "trap '' XFSZ; ulimit -f \"$1\"; exec \"$2\" node",
        "sh",
        &blocks.to_string(),
    ]);
    node.arg(limited.get_program())
        .current_dir(fixture.folder.path());
    node.envs(
        limited
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = node.output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("error: "), "{stderr}");
    // No acknowledged work is lost, and without the limit it continues.
    let doctor = fixture.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor.stdout));
    assert_eq!(
        fixture.run_workflow("chain", "{\"steps\": 1}")["result"],
        Value::from(1)
    );
}
