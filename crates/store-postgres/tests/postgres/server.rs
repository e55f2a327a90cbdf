//! Servers and connections for the tests.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use onward_store_postgres::{Options, PostgresStore};
use onward_testing::{ClusterDurability, PostgresCluster};
use tokio_postgres::{Client, NoTls};

/// A server for tests that crash nothing.
pub(crate) fn careless() -> Arc<PostgresCluster> {
    static SHARED: Mutex<Weak<PostgresCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster =
            Arc::new(PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// A store, the URL of its database, and the server that it is on.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pub(crate) url: String,
    pub(crate) cluster: Arc<PostgresCluster>,
}

/// An empty store.
pub(crate) async fn fresh() -> Fixture {
    let cluster = careless();
    let url = cluster.create_database().unwrap();
    Fixture {
        store: open(&url).await,
        url,
        cluster,
    }
}

/// A store on the database that `url` names.
pub(crate) async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, Options::default()).await.unwrap()
}

/// A connection of our own, to look and to tamper with.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until somebody waits for a lock in the database that `url` names.
pub(crate) async fn wait_for_lock(url: &str) {
    let client = connect(url).await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}
