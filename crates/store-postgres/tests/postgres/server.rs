//! Servers and connections for the tests.

use std::sync::Arc;

use onward_store_postgres::{Options, PostgresStore};
use onward_testing::{ClusterDurability, PostgresCluster};
use tokio_postgres::{Client, NoTls};

/// A shared server without fsync, for tests that do not crash it.
pub(crate) fn unsynced_cluster() -> Arc<PostgresCluster> {
    PostgresCluster::shared_cluster(ClusterDurability::Unsynced).unwrap()
}

/// A store, the URL of its database, and its server.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pub(crate) url: String,
    pub(crate) cluster: Arc<PostgresCluster>,
}

/// An empty store.
pub(crate) async fn fresh() -> Fixture {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    Fixture {
        store: open(&url).await,
        url,
        cluster,
    }
}

/// Opens a store on the database of `url`.
pub(crate) async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, Options::default()).await.unwrap()
}

/// Opens a direct connection to the database.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until a connection waits for a lock in the database of `url`.
pub(crate) async fn wait_for_lock(url: &str) {
    let client = connect(url).await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}
