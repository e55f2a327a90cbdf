//! The schema is created once, by one process, in one transaction; a database that this program
//! cannot use is not changed.

use onward_store::{Error, RunStateStore as _, StoreErrorKind};
use onward_store_postgres::{Options, PostgresStore};

use crate::sample::event;
use crate::server::{connect, fresh, open, unsynced_cluster};

async fn refusal(url: &str) -> Error {
    match PostgresStore::open(url, Options::default()).await {
        Ok(_) => panic!("the database was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn opening_a_store_twice_changes_nothing() {
    let fixture = fresh().await;
    fixture.store.append_event(event("r", 1)).await.unwrap();
    let again = open(&fixture.url).await;
    assert!(
        again
            .append_event(event("r", 1))
            .await
            .unwrap()
            .result
            .idempotent
    );
    let client = connect(&fixture.url).await;
    let row = client
        .query_one("SELECT count(*), max(number) FROM onward_migrations", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_opens_exactly_one_migrates() {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        opening.spawn(async move { drop(open(&url).await) });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap();
    }
}

#[tokio::test]
async fn a_changed_migration_is_rejected() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute("UPDATE onward_migrations SET checksum = 'other'")
        .await
        .unwrap();
    let error = refusal(&fixture.url).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("migration 1 (initial)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_newer_database_is_rejected() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute("INSERT INTO onward_migrations VALUES (99, 'later', 'x', now())")
        .await
        .unwrap();
    let error = refusal(&fixture.url).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("newer than this program"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failed_migration_is_rolled_back() {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    let client = connect(&url).await;
    client
        .batch_execute("CREATE TABLE inbox (mine INT)")
        .await
        .unwrap();
    assert_eq!(refusal(&url).await.kind(), StoreErrorKind::Fatal);
    let sql = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0),
        1
    );
    client.batch_execute("DROP TABLE inbox").await.unwrap();
    open(&url).await;
}
