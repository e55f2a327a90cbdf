//! Runs the conformance suite on SQLite, and random sequences on SQLite and the memory store.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use onward_store::conformance::differential::run_differential;
use onward_store::conformance::{
    self, MemoryStoreFactory, OpenedStore, StoreFactory, TamperAttempt,
};
use onward_store::{Error, ManualClock, Store, StorePolicy};
use onward_store_sqlite::{Options, SqliteStore};
use rusqlite::{Connection, params};
use tempfile::TempDir;

struct OnSqlite;

struct File {
    store: SqliteStore,
    path: PathBuf,
    policy: StorePolicy,
    clock: Arc<ManualClock>,
    _folder: TempDir,
}

#[async_trait]
impl StoreFactory for OnSqlite {
    fn name(&self) -> &str {
        "sqlite"
    }

    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(
            &path,
            Options {
                policy,
                clock: Arc::<ManualClock>::clone(&clock),
            },
        )?;
        Ok(Box::new(File {
            store,
            path,
            policy,
            clock,
            _folder: folder,
        }))
    }
}

#[async_trait]
impl OpenedStore for File {
    fn store(&self) -> &(dyn Store + 'static) {
        &self.store
    }

    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        let options = Options {
            policy: self.policy,
            clock: Arc::<ManualClock>::clone(&self.clock),
        };
        Ok(Some(Arc::new(SqliteStore::open(&self.path, options)?)))
    }

    async fn try_tamper(&self, tampering: &TamperAttempt) -> Result<bool, Error> {
        let raw = Connection::open(&self.path).unwrap();
        let of_run = "run_no = (SELECT run_no FROM runs WHERE run_id = ?1) AND run_seq = ?2";
        let of_execution = "journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1)";
        let done = match tampering {
            TamperAttempt::UpdateEvent { run, seq } => {
                let sql = format!("UPDATE run_events SET event_type = 'Other' WHERE {of_run}");
                raw.execute(&sql, params![&**run, seq.as_u64().cast_signed()])
            }
            TamperAttempt::DeleteEvent { run, seq } => {
                let sql = format!("DELETE FROM run_events WHERE {of_run}");
                raw.execute(&sql, params![&**run, seq.as_u64().cast_signed()])
            }
            TamperAttempt::UpdateJournal { execution } => raw.execute(
                &format!("UPDATE journal SET records = x'' WHERE {of_execution}"),
                [execution.as_bytes().as_slice()],
            ),
            TamperAttempt::DeleteJournal { execution } => raw.execute(
                &format!("DELETE FROM journal WHERE {of_execution}"),
                [execution.as_bytes().as_slice()],
            ),
            TamperAttempt::EmptyEvents => raw.execute("DELETE FROM run_events", []),
        };
        Ok(done.is_ok())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    conformance::run_checks(&OnSqlite, std::env::var("ONWARD_ONLY").ok().as_deref())
        .await
        .expect_all_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_give_the_same_results_as_the_memory_store() {
    for seed in 0..300 {
        if let Err(divergence) = run_differential(&[&MemoryStoreFactory, &OnSqlite], seed, 40).await
        {
            panic!("{divergence}");
        }
    }
}
