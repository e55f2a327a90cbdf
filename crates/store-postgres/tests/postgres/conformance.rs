//! Runs the conformance suite on Postgres.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use onward_store::conformance::differential::run_differential;
use onward_store::conformance::{
    self, MemoryStoreFactory, OpenedStore, StoreFactory, TamperAttempt,
};
use onward_store::{Error, ManualClock, Store, StorePolicy};
use onward_store_postgres::{Options, PostgresStore};
use onward_testing::PostgresCluster;

use crate::server::{connect, unsynced_cluster};

/// Empties a schema for the next store. Triggers that protect events and journals are disabled.
const EMPTY_SCHEMA: &str = "
SET session_replication_role = replica;
DO $$
DECLARE
    relation RECORD;
BEGIN
    FOR relation IN SELECT * FROM pg_tables
        WHERE schemaname = current_schema AND tablename <> 'onward_migrations'
    LOOP
        EXECUTE format('DELETE FROM %I', relation.tablename);
    END LOOP;
    FOR relation IN SELECT * FROM pg_sequences WHERE schemaname = current_schema
    LOOP
        PERFORM setval(relation.sequencename::text::regclass, 1, false);
    END LOOP;
END
$$";

/// Each store gets its own schema in one database, and later stores get the schemas of earlier
/// ones, because creating the tables takes longer than most checks.
struct OnPostgres {
    url: String,
    schemas: AtomicU32,
    unused_schemas: Arc<Mutex<Vec<String>>>,
    _cluster: Arc<PostgresCluster>,
}

impl OnPostgres {
    fn start() -> Self {
        let cluster = unsynced_cluster();
        Self {
            url: cluster.create_database().unwrap(),
            schemas: AtomicU32::new(0),
            unused_schemas: Arc::default(),
            _cluster: cluster,
        }
    }

    /// Returns a schema without data.
    async fn empty_schema(&self) -> ReusedSchema {
        let unused = self.unused_schemas.lock().unwrap().pop();
        let name = if let Some(name) = unused {
            connect(&self.schema_url(&name))
                .await
                .batch_execute(EMPTY_SCHEMA)
                .await
                .unwrap();
            name
        } else {
            let name = format!("subject_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
            connect(&self.url)
                .await
                .batch_execute(&format!("CREATE SCHEMA {name}"))
                .await
                .unwrap();
            name
        };
        ReusedSchema {
            name,
            unused_schemas: Arc::clone(&self.unused_schemas),
        }
    }

    fn schema_url(&self, schema: &str) -> String {
        format!("{}?options=-csearch_path%3D{schema}", self.url)
    }
}

/// A schema that becomes available to other stores when it is dropped.
struct ReusedSchema {
    name: String,
    unused_schemas: Arc<Mutex<Vec<String>>>,
}

impl Drop for ReusedSchema {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        self.unused_schemas.lock().unwrap().push(name);
    }
}

struct Database {
    store: PostgresStore,
    url: String,
    options: Options,
    /// Dropped last.
    _schema: ReusedSchema,
}

#[async_trait]
impl StoreFactory for OnPostgres {
    fn name(&self) -> &str {
        "postgres"
    }

    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error> {
        let schema = self.empty_schema().await;
        let url = self.schema_url(&schema.name);
        let options = Options {
            policy,
            clock: Some(clock),
            readers: 2,
            ..Options::default()
        };
        let store = PostgresStore::open(&url, options.clone()).await?;
        Ok(Box::new(Database {
            store,
            url,
            options,
            _schema: schema,
        }))
    }
}

#[async_trait]
impl OpenedStore for Database {
    fn store(&self) -> &(dyn Store + 'static) {
        &self.store
    }

    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::new(
            PostgresStore::open(&self.url, self.options.clone()).await?,
        )))
    }

    async fn try_tamper(&self, tampering: &TamperAttempt) -> Result<bool, Error> {
        let client = connect(&self.url).await;
        let done = match tampering {
            TamperAttempt::UpdateEvent { run, seq } => {
                let sql =
                    "UPDATE run_events SET event_type = 'Other' WHERE run_id = $1 AND run_seq = $2";
                client
                    .execute(sql, &[&&**run, &seq.as_u64().cast_signed()])
                    .await
            }
            TamperAttempt::DeleteEvent { run, seq } => {
                let sql = "DELETE FROM run_events WHERE run_id = $1 AND run_seq = $2";
                client
                    .execute(sql, &[&&**run, &seq.as_u64().cast_signed()])
                    .await
            }
            TamperAttempt::UpdateJournal { execution } => {
                let sql = "UPDATE journal SET records = '' WHERE execution_id = $1";
                client
                    .execute(sql, &[&execution.as_bytes().as_slice()])
                    .await
            }
            TamperAttempt::DeleteJournal { execution } => {
                let sql = "DELETE FROM journal WHERE execution_id = $1";
                client
                    .execute(sql, &[&execution.as_bytes().as_slice()])
                    .await
            }
            TamperAttempt::EmptyEvents => client.execute("TRUNCATE run_events", &[]).await,
        };
        Ok(done.is_ok())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    let report = conformance::run_checks(
        &OnPostgres::start(),
        std::env::var("ONWARD_ONLY").ok().as_deref(),
    )
    .await;
    report.expect_all_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_give_the_same_results_as_the_memory_store() {
    let subject = OnPostgres::start();
    let seeds: u64 = std::env::var("ONWARD_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        if let Err(divergence) = run_differential(&[&MemoryStoreFactory, &subject], seed, 40).await
        {
            panic!("{divergence}");
        }
    }
}
