//! Stores of earlier schemas: they open, nothing in them is lost, and their work continues.
//!
//! A fixture holds the same work in each database: a completed, a cancelled, a blocked and an
//! unstarted execution, a task that waits for a worker, a run with its events, a token, a
//! suppressed address, and two campaign runs, of which one is paused and one has four items in
//! doubt after a kill -9.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use onward_testing::{ClusterDurability, PostgresCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::http_server::Server;
use crate::{onward, text};

/// The execution with the key `waits-for-approval`. Its id is a digest, equal in all fixtures.
const BLOCKED_EXECUTION: &str = "8bca1462ca3a56a9bb9edec239d83c760cebbb9b3fd521f0dc6ede76451ca22c";

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
        allow_all_users(folder.path());
        let cluster = PostgresCluster::shared_cluster(ClusterDurability::Synced).unwrap();
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
        found
            .unwrap_or_else(|| panic!("execution {key} not found"))
            .clone()
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

/// Makes a folder readable for the user of the database server, which reads the dump.
fn allow_all_users(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

fn nothing_is_lost_and_work_continues(store: &RestoredStore) {
    let (code, printed) = store.run(&["ls"]);
    assert_eq!(code, Some(2), "a command that reads does not migrate");
    assert!(printed.contains("older than this program"), "{printed}");
    // A command that writes migrates the store. The id is that of the fixture's execution.
    let (code, printed) = store.run(&[
        "signal",
        BLOCKED_EXECUTION,
        "approval",
        r#"{"approved":true,"by":"Ada"}"#,
    ]);
    assert_eq!(code, Some(0), "{printed}");
    let blocked = store.execution_with_key("waits-for-approval");
    assert_eq!(blocked["execution"], BLOCKED_EXECUTION);

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
        "--reason",
        "provider log",
    ];
    let (code, printed) = store.run(&settle);
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = store.run(&["doctor"]);
    assert_eq!(code, Some(0), "{printed}");
    paused_campaign_run_completes(store);
}

/// Resumes the paused campaign run and sends it with a server. The server rejects a campaign
/// document with keys of schema 1, so this also proves that the documents were migrated.
fn paused_campaign_run_completes(store: &RestoredStore) {
    let paused = store.json(&["campaign", "ls", "--status", "paused"]);
    assert_eq!(paused.len(), 1, "{paused:?}");
    let run = paused[0]["run"].as_str().unwrap();
    let config = store.folder.path().join("onward.toml");
    let provider = format!(
        "[providers.service.http]\nurl = \"http://127.0.0.1:{}/\"\nbody = '{{\"to\": {{{{ to }}}}}}'\n",
        start_accepting_service()
    );
    fs::write(&config, provider).unwrap();
    let serve = [
        "serve",
        "--store",
        &store.url,
        "--listen",
        "127.0.0.1:0",
        "--config",
        config.to_str().unwrap(),
    ];
    let _server = Server::spawn(&mut onward(&serve));
    let (code, printed) = store.run(&["campaign", "resume", run]);
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = store.run(&["campaign", "watch", run]);
    assert_eq!(code, Some(0), "{printed}");
    for (state, count) in [("sent", 5), ("skipped", 1)] {
        // One of the six addresses is on the suppression list.
        let items = store.json(&["outbox", "ls", run, "--state", state]);
        assert_eq!(items.len(), count, "{state}: {items:?}");
    }
}

/// Starts an HTTP service that accepts every request. Returns its port.
fn start_accepting_service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || accept_requests(stream));
        }
    });
    port
}

fn accept_requests(stream: TcpStream) {
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
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if line.is_empty()
            || reader.read_exact(&mut body).is_err()
            || reader.get_mut().write_all(response).is_err()
        {
            return;
        }
    }
}

#[test]
fn a_sqlite_store_of_schema_1_keeps_its_work() {
    nothing_is_lost_and_work_continues(&RestoredStore::sqlite("schema-1"));
}

#[test]
fn a_postgres_store_of_schema_1_keeps_its_work() {
    nothing_is_lost_and_work_continues(&RestoredStore::postgres("schema-1"));
}
