//! Stores of every schema: they open, nothing in them is lost, and their work continues. Stores of
//! earlier schemas are fixtures; a store of the current one is written by
//! [`fixture_store`](crate::fixture_store), with the same work.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use onward_testing::{ClusterDurability, PostgresCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture_store::{ORDER, start_accepting_service, write_config, write_store};
use crate::http_server::Server;
use crate::{onward, text};

/// The execution with the key `waits-for-approval` in the fixtures of each schema. Its id is a
/// digest of its component, key and scope.
const BLOCKED_EXECUTIONS: [&str; 2] = [
    "8bca1462ca3a56a9bb9edec239d83c760cebbb9b3fd521f0dc6ede76451ca22c",
    "58a583d38ddce1ec199c920340b5f5a31abf90067743ca27240f947567a60e13",
];

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

fn only_writing_commands_migrate(store: &RestoredStore) {
    let (code, printed) = store.run(&["ls"]);
    assert_eq!(code, Some(2), "a command that reads does not migrate");
    assert!(printed.contains("older than this program"), "{printed}");
}

fn nothing_is_lost_and_work_continues(store: &RestoredStore, blocked: &str) {
    // A command that writes migrates the store.
    let (code, printed) = store.run(&[
        "signal",
        blocked,
        "approval",
        r#"{"approved":true,"by":"Ada"}"#,
    ]);
    assert_eq!(code, Some(0), "{printed}");
    let found = store.execution_with_key("waits-for-approval");
    assert_eq!(found["execution"], blocked);

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

    let (code, printed) = store.run(&[
        "start",
        "order",
        ORDER,
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
    let config = write_config(store.folder.path(), start_accepting_service());
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

#[test]
fn sqlite_stores_of_earlier_schemas_keep_their_work() {
    for schema in 1..newest_schema("store-sqlite") {
        let store = RestoredStore::sqlite(&format!("schema-{schema}"));
        only_writing_commands_migrate(&store);
        nothing_is_lost_and_work_continues(&store, BLOCKED_EXECUTIONS[schema - 1]);
    }
}

#[test]
fn postgres_stores_of_earlier_schemas_keep_their_work() {
    for schema in 1..newest_schema("store-postgres") {
        let store = RestoredStore::postgres(&format!("schema-{schema}"));
        only_writing_commands_migrate(&store);
        nothing_is_lost_and_work_continues(&store, BLOCKED_EXECUTIONS[schema - 1]);
    }
}

#[test]
fn a_sqlite_store_of_the_current_schema_keeps_its_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store = RestoredStore {
        url: format!("sqlite:{}", file.display()),
        folder,
        _cluster: None,
    };
    write_store(&store.url, store.folder.path());
    if writes_fixtures() {
        // Appends nothing, and checkpoints the log when it closes the file.
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/runs/orders.jsonl");
        let (code, printed) = store.run(&["state", "append", events.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{printed}");
        let log = file.with_extension("db-wal");
        assert!(!log.exists(), "the last process checkpoints the log");
        let schema = newest_schema("store-sqlite");
        compress(&fs::read(&file).unwrap(), schema, "sqlite.db.gz");
    }
    let blocked = store.execution_with_key("waits-for-approval");
    nothing_is_lost_and_work_continues(&store, blocked["execution"].as_str().unwrap());
}

#[test]
fn a_postgres_store_of_the_current_schema_keeps_its_work() {
    let cluster = PostgresCluster::shared_cluster(ClusterDurability::Synced).unwrap();
    let url = cluster.create_database().unwrap();
    let store = RestoredStore {
        folder: tempfile::tempdir().unwrap(),
        url,
        _cluster: Some(Arc::clone(&cluster)),
    };
    write_store(&store.url, store.folder.path());
    if writes_fixtures() {
        let dump = cluster.dump_database(&store.url).unwrap();
        let schema = newest_schema("store-postgres");
        compress(dump.as_bytes(), schema, "postgres.sql.gz");
    }
    let blocked = store.execution_with_key("waits-for-approval");
    nothing_is_lost_and_work_continues(&store, blocked["execution"].as_str().unwrap());
}

/// Number of migrations of an adapter, which is the number of its newest schema.
fn newest_schema(adapter: &str) -> usize {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let migrations = fs::read_dir(crates.join(adapter).join("migrations")).unwrap();
    migrations.count()
}

fn writes_fixtures() -> bool {
    std::env::var_os("ONWARD_WRITE_FIXTURES").is_some()
}

fn compress(bytes: &[u8], schema: usize, name: &str) {
    let path = fixture(&format!("schema-{schema}"), name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = fs::File::create(path).unwrap();
    let mut gzip = Command::new("gzip");
    let mut gzip = gzip
        .args(["-9", "-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = thread::spawn(move || input.write_all(&bytes).unwrap());
    io::copy(&mut gzip.stdout.take().unwrap(), &mut file).unwrap();
    writer.join().unwrap();
    assert!(gzip.wait().unwrap().success());
}
