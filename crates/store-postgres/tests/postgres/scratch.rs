//! Scratch schemas: a store in one is separate from all other data of the database.

use onward_store::{RunEventQuery, RunStateStore as _};
use onward_store_postgres::baseline::PostgresBaseline;
use onward_store_postgres::scratch_schema::ScratchSchema;

use crate::sample::{event, run};
use crate::server::{connect, fresh, open};

#[tokio::test]
async fn a_scratch_store_is_separate_and_is_dropped_at_the_end() {
    let fixture = fresh().await;
    fixture.store.append_event(event("r", 1)).await.unwrap();
    let scratch = ScratchSchema::create(&fixture.url, "scratch_1")
        .await
        .unwrap();
    let store = open(&scratch.store_url()).await;
    assert!(
        store
            .fetch_events(&run("r"), RunEventQuery::default())
            .await
            .unwrap()
            .is_empty()
    );
    store.append_event(event("r", 1)).await.unwrap();
    drop(store);
    scratch.drop_schema().await.unwrap();
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname = 'scratch_1'";
    assert_eq!(
        connect(&fixture.url)
            .await
            .query_one(count, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        0
    );
    assert_eq!(
        fixture
            .store
            .fetch_events(&run("r"), RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn an_invalid_schema_name_is_rejected() {
    let fixture = fresh().await;
    for name in ["", "a; DROP SCHEMA public", "A", "a\"b"] {
        assert!(
            ScratchSchema::create(&fixture.url, name).await.is_err(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn the_baseline_reports_its_durability_and_the_bytes_written() {
    let fixture = fresh().await;
    let yardstick = PostgresBaseline::open(&fixture.url).await.unwrap();
    let durability = yardstick.durability_settings().await.unwrap();
    // The server of these tests does not sync, and the baseline must report that.
    assert!(
        durability.contains("fsync=off, synchronous_commit="),
        "{durability}"
    );
    let (log, disk) = (
        yardstick.wal_bytes().await.unwrap(),
        yardstick.disk_bytes().await.unwrap(),
    );
    yardstick.commit_row().await.unwrap();
    assert!(yardstick.wal_bytes().await.unwrap() > log);
    assert!(yardstick.disk_bytes().await.unwrap() >= disk && disk > 0);
}
