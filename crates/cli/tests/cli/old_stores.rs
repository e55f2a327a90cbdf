//! Stores of earlier schemas: they open, nothing in them is lost, and their work continues.
//!
//! A fixture holds the same work in each database: a completed, a cancelled, a blocked and an
//! unstarted execution, a task that waits for a worker, a run with its events, a token, a
//! suppressed address, and two campaign runs, of which one is paused and one has four items in
//! doubt after a kill -9.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onward_testing::PostgresCluster;
use serde_json::Value;
use tempfile::TempDir;

use crate::{onward, text};

struct RestoredStore {
    folder: TempDir,
    url: String,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl RestoredStore {
    fn sqlite(schema: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = decompress(
            &fixture(schema, "sqlite.db.gz"),
            &folder.path().join("store.db"),
        );
        let url = format!("sqlite:{}", path.display());
        Self {
            folder,
            url,
            _cluster: None,
        }
    }

    fn postgres(schema: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("onward-dump-")
            .tempdir()
            .unwrap();
        let dump = decompress(
            &fixture(schema, "postgres.sql.gz"),
            &folder.path().join("dump.sql"),
        );
        open_to_all(folder.path());
        let cluster = PostgresCluster::shared_cluster().unwrap();
        let url = cluster.restore_database(&dump).unwrap();
        Self {
            folder,
            url,
            _cluster: Some(cluster),
        }
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = onward(args)
            .args(["--store", &self.url])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.code(), printed)
    }

    /// The lines that a command prints with `--json`.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let output = onward(args)
            .args(["--json", "--store", &self.url])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            text(&output.stderr)
        );
        let lines = text(&output.stdout).lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn execution_with_key(&self, key: &str) -> Value {
        let executions = self.json(&["ls"]);
        let found = executions.iter().find(|it| it["key"] == key);
        found.unwrap_or_else(|| panic!("{key} is lost")).clone()
    }
}

fn fixture(schema: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stores");
    folder.join(schema).join(name)
}

fn decompress(from: &Path, to: &Path) -> PathBuf {
    let output = Command::new("gzip").arg("-dc").arg(from).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::write(to, output.stdout).unwrap();
    to.to_owned()
}

/// The database server reads the dump as a user of its own.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

fn nothing_is_lost_and_work_continues(store: &RestoredStore) {
    let blocked = store.execution_with_key("waits-for-approval");
    let id = blocked["execution"].as_str().unwrap().to_owned();
    // A command that writes migrates the store.
    let (code, printed) =
        store.run(&["signal", &id, "approval", r#"{"approved":true,"by":"Ada"}"#]);
    assert_eq!(code, Some(0), "{printed}");

    for (key, state) in [
        ("waits-for-approval", "Blocked"),
        ("completed", "Completed"),
        ("cancelled", "Cancelled"),
        ("waits-for-worker", "Blocked"),
    ] {
        assert_eq!(store.execution_with_key(key)["state"], state, "{key}");
    }
    let (code, printed) = store.run(&["state", "verify"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("15 events of 1 run"), "{printed}");
    let tasks = store.json(&["tasks"]);
    assert_eq!(tasks[0]["function"], "resize_image");
    let (_, tokens) = store.run(&["token", "ls"]);
    assert!(tokens.contains("ops"), "{tokens}");

    let order = r#"{"customer":"Ada","item":"lamp","quantity":2}"#;
    let (code, printed) = store.run(&[
        "start",
        "order",
        order,
        "--key",
        "waits-for-approval",
        "--wait",
    ]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(r#""approved_by":"Ada""#), "{printed}");

    let items = store.json(&["outbox", "in-doubt"]);
    assert_eq!(items.len(), 4, "{items:?}");
    let run = items[0]["run"].as_str().unwrap();
    let settle = [
        "outbox",
        "settle",
        "--run",
        run,
        "sent",
        "--why",
        "the provider's log",
    ];
    let (code, printed) = store.run(&settle);
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = store.run(&["doctor"]);
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn a_sqlite_store_of_schema_1_keeps_its_work() {
    nothing_is_lost_and_work_continues(&RestoredStore::sqlite("schema-1"));
}

#[test]
fn a_postgres_store_of_schema_1_keeps_its_work() {
    nothing_is_lost_and_work_continues(&RestoredStore::postgres("schema-1"));
}
