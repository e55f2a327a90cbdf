//! The schema is made once, by one, and whole; and a database that is not ours is left alone.

use onward_store::{Error, RunStateStore as _, StoreErrorKind};
use onward_store_postgres::{Options, PostgresStore};

use crate::sample::event;
use crate::server::{careless, connect, fresh, open};

async fn refusal(url: &str) -> Error {
    match PostgresStore::open(url, Options::default()).await {
        Ok(_) => panic!("the database was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn opening_again_changes_nothing() {
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
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_open_at_once_one_migrates() {
    let cluster = careless();
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
async fn a_changed_migration_is_refused() {
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
async fn a_newer_database_is_left_alone() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute("INSERT INTO onward_migrations VALUES (2, 'later', 'x', now())")
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
async fn a_migration_that_fails_leaves_nothing_behind() {
    let cluster = careless();
    let url = cluster.create_database().unwrap();
    let client = connect(&url).await;
    client
        .batch_execute("CREATE TABLE timers (mine INT)")
        .await
        .unwrap();
    assert_eq!(refusal(&url).await.kind(), StoreErrorKind::Fatal);
    let sql = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0),
        1
    );
    client.batch_execute("DROP TABLE timers").await.unwrap();
    open(&url).await;
}
