//! The suite that every store has to pass, on Postgres.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use onward_store::conformance::differential::differential;
use onward_store::conformance::{self, OnMemory, Opened, Subject, Tampering};
use onward_store::{Error, ManualClock, Policy, Store};
use onward_store_postgres::{Options, Postgres};
use onward_testing::Cluster;

use crate::server::{careless, connect};

/// Every store gets a schema of its own in one database: making a database takes longer than most checks.
struct OnPostgres {
    url: String,
    schemas: AtomicU32,
    _cluster: Arc<Cluster>,
}

impl OnPostgres {
    fn start() -> Self {
        let cluster = careless();
        Self { url: cluster.database().unwrap(), schemas: AtomicU32::new(0), _cluster: cluster }
    }
}

struct Database {
    store: Postgres,
    url: String,
    options: Options,
}

#[async_trait]
impl Subject for OnPostgres {
    fn name(&self) -> &str {
        "postgres"
    }

    async fn fresh(&self, policy: Policy, clock: Arc<ManualClock>) -> Result<Box<dyn Opened>, Error> {
        let schema = format!("subject_{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        connect(&self.url).await.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
        let url = format!("{}?options=-csearch_path%3D{schema}", self.url);
        let options = Options { policy, clock: Some(clock), readers: 2, ..Options::default() };
        let store = Postgres::open(&url, options.clone()).await?;
        Ok(Box::new(Database { store, url, options }))
    }
}

#[async_trait]
impl Opened for Database {
    fn store(&self) -> &(dyn Store + 'static) {
        &self.store
    }

    async fn another(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::new(Postgres::open(&self.url, self.options.clone()).await?)))
    }

    async fn tamper(&self, tampering: &Tampering) -> Result<bool, Error> {
        let client = connect(&self.url).await;
        let done = match tampering {
            Tampering::UpdateEvent { run, seq } => {
                let sql = "UPDATE run_events SET event_type = 'Other' WHERE run_id = $1 AND run_seq = $2";
                client.execute(sql, &[&&**run, &seq.get().cast_signed()]).await
            }
            Tampering::DeleteEvent { run, seq } => {
                let sql = "DELETE FROM run_events WHERE run_id = $1 AND run_seq = $2";
                client.execute(sql, &[&&**run, &seq.get().cast_signed()]).await
            }
            Tampering::UpdateJournal { execution } => {
                let sql = "UPDATE journal SET records = '' WHERE execution_id = $1";
                client.execute(sql, &[&execution.as_bytes().as_slice()]).await
            }
            Tampering::DeleteJournal { execution } => {
                let sql = "DELETE FROM journal WHERE execution_id = $1";
                client.execute(sql, &[&execution.as_bytes().as_slice()]).await
            }
            Tampering::EmptyEvents => client.execute("TRUNCATE run_events", &[]).await,
        };
        Ok(done.is_ok())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    let report = conformance::run(&OnPostgres::start(), std::env::var("ONWARD_ONLY").ok().as_deref()).await;
    report.expect_all_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_are_answered_as_by_the_store_in_memory() {
    let subject = OnPostgres::start();
    let seeds: u64 = std::env::var("ONWARD_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        if let Err(divergence) = differential(&[&OnMemory, &subject], seed, 40).await {
            panic!("{divergence}");
        }
    }
}
