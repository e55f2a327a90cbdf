//! The suite that every store has to pass, on Postgres.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use onward_store::conformance::differential::run_differential;
use onward_store::conformance::{
    self, MemoryStoreFactory, OpenedStore, StoreFactory, TamperAttempt,
};
use onward_store::{Error, ManualClock, Store, StorePolicy};
use onward_store_postgres::{Options, PostgresStore};
use onward_testing::PostgresCluster;

use crate::server::{careless, connect};

/// Every store gets a schema of its own in one database: making a database takes longer than most
/// checks.
struct OnPostgres {
    url: String,
    schemas: AtomicU32,
    _cluster: Arc<PostgresCluster>,
}

impl OnPostgres {
    fn start() -> Self {
        let cluster = careless();
        Self {
            url: cluster.create_database().unwrap(),
            schemas: AtomicU32::new(0),
            _cluster: cluster,
        }
    }
}

struct Database {
    store: PostgresStore,
    url: String,
    options: Options,
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
        let schema = format!("subject_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        connect(&self.url)
            .await
            .batch_execute(&format!("CREATE SCHEMA {schema}"))
            .await
            .unwrap();
        let url = format!("{}?options=-csearch_path%3D{schema}", self.url);
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
async fn random_sequences_are_answered_as_by_the_store_in_memory() {
    let subject = OnPostgres::start();
    let seeds: u64 = std::env::var("ONWARD_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        if let Err(divergence) = run_differential(&[&MemoryStoreFactory, &subject], seed, 40).await
        {
            panic!("{divergence}");
        }
    }
}
