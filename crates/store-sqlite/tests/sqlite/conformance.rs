//! The suite that every store has to pass, and random sequences beside the store in memory, on SQLite.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use onward_store::conformance::differential::differential;
use onward_store::conformance::{self, OnMemory, Opened, Subject, Tampering};
use onward_store::{Error, ManualClock, Policy, Store};
use onward_store_sqlite::{Options, Sqlite};
use rusqlite::{Connection, params};
use tempfile::TempDir;

struct OnSqlite;

struct File {
    store: Sqlite,
    path: PathBuf,
    policy: Policy,
    clock: Arc<ManualClock>,
    _folder: TempDir,
}

#[async_trait]
impl Subject for OnSqlite {
    fn name(&self) -> &str {
        "sqlite"
    }

    async fn fresh(&self, policy: Policy, clock: Arc<ManualClock>) -> Result<Box<dyn Opened>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Sqlite::open(&path, Options { policy, clock: Arc::<ManualClock>::clone(&clock) })?;
        Ok(Box::new(File { store, path, policy, clock, _folder: folder }))
    }
}

#[async_trait]
impl Opened for File {
    fn store(&self) -> &(dyn Store + 'static) {
        &self.store
    }

    async fn another(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        let options = Options { policy: self.policy, clock: Arc::<ManualClock>::clone(&self.clock) };
        Ok(Some(Arc::new(Sqlite::open(&self.path, options)?)))
    }

    async fn tamper(&self, tampering: &Tampering) -> Result<bool, Error> {
        let raw = Connection::open(&self.path).unwrap();
        let of_run = "run_no = (SELECT run_no FROM runs WHERE run_id = ?1) AND run_seq = ?2";
        let of_execution = "journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1)";
        let done = match tampering {
            Tampering::UpdateEvent { run, seq } => {
                let sql = format!("UPDATE run_events SET event_type = 'Other' WHERE {of_run}");
                raw.execute(&sql, params![&**run, seq.get().cast_signed()])
            }
            Tampering::DeleteEvent { run, seq } => {
                let sql = format!("DELETE FROM run_events WHERE {of_run}");
                raw.execute(&sql, params![&**run, seq.get().cast_signed()])
            }
            Tampering::UpdateJournal { execution } => raw.execute(
                &format!("UPDATE journal SET records = x'' WHERE {of_execution}"),
                [execution.as_bytes().as_slice()],
            ),
            Tampering::DeleteJournal { execution } => {
                raw.execute(&format!("DELETE FROM journal WHERE {of_execution}"), [execution.as_bytes().as_slice()])
            }
            Tampering::EmptyEvents => raw.execute("DELETE FROM run_events", []),
        };
        Ok(done.is_ok())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    conformance::run(&OnSqlite, std::env::var("ONWARD_ONLY").ok().as_deref()).await.expect_all_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_are_answered_as_by_the_store_in_memory() {
    for seed in 0..300 {
        if let Err(divergence) = differential(&[&OnMemory, &OnSqlite], seed, 40).await {
            panic!("{divergence}");
        }
    }
}
