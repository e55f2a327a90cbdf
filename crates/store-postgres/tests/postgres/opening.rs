//! A database that cannot be used is rejected with an error that says what to do.

use std::time::Duration;

use onward_store::{
    Error, PurgeTarget, RunEventQuery, RunStateStore as _, Store as _, StoreErrorKind,
};
use onward_store_postgres::{Options, PostgresStore};

use crate::sample::{event, run};
use crate::server::{connect, fresh, unsynced_cluster};

async fn refusal(url: &str) -> Error {
    let options = Options {
        call_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    match PostgresStore::open(url, options).await {
        Ok(_) => panic!("the database was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_read_only_open_changes_nothing() {
    let fixture = fresh().await;
    fixture.store.append_event(event("r", 1)).await.unwrap();
    let reading = PostgresStore::open_read_only(&fixture.url, Options::default())
        .await
        .unwrap();
    assert_eq!(
        reading
            .fetch_events(&run("r"), RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(matches!(
        reading.append_event(event("r", 2)).await,
        Err(Error::Unusable(_))
    ));
    assert!(matches!(
        reading.purge(PurgeTarget::Run(run("r"))).await,
        Err(Error::Unusable(_))
    ));
    let empty = fixture.cluster.create_database().unwrap();
    let refused = PostgresStore::open_read_only(&empty, Options::default())
        .await
        .err();
    assert_eq!(
        refused,
        Some(Error::Unusable("the database contains no store".to_owned()))
    );
    let count = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(
        connect(&empty)
            .await
            .query_one(count, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        0
    );
}

#[tokio::test]
async fn a_missing_server_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(
        refusal(&format!("postgres://onward@127.0.0.1:{port}/onward"))
            .await
            .kind(),
        StoreErrorKind::Retry
    );
}

#[tokio::test]
async fn a_missing_database_is_unusable() {
    let cluster = unsynced_cluster();
    let error = refusal(&cluster.database_url("nothing")).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(error.to_string().contains("Create it first"), "{error}");
}

#[tokio::test]
async fn a_missing_role_is_unusable_and_the_error_omits_its_password() {
    let cluster = unsynced_cluster();
    let error = refusal(&format!(
        "postgres://nobody:secret@127.0.0.1:{}/postgres",
        cluster.port()
    ))
    .await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("Check user and password"),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_role_without_privileges_is_named_in_the_error() {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    let client = connect(&url).await;
    client
        .batch_execute("CREATE ROLE guest LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC")
        .await
        .unwrap();
    let error = refusal(&url.replace("onward@", "guest@")).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("The role needs the right"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_unusable_if_tls_is_required() {
    let cluster = unsynced_cluster();
    let error = refusal(&format!(
        "{}?sslmode=require",
        cluster.database_url("postgres")
    ))
    .await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal, "{error}");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_unusable() {
    let cluster = unsynced_cluster();
    let client = connect(&cluster.database_url("postgres")).await;
    let sql =
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    client.batch_execute(sql).await.unwrap();
    let error = refusal(&cluster.database_url("latin")).await;
    assert!(error.to_string().contains("LATIN1"), "{error}");
}

#[tokio::test]
async fn a_store_without_a_record_of_its_migrations_is_rejected_in_words() {
    let fixture = fresh().await;
    connect(&fixture.url)
        .await
        .batch_execute("DELETE FROM onward_migrations")
        .await
        .unwrap();
    let error = refusal(&fixture.url).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("onward_migrations is empty"),
        "{error}"
    );
}

#[tokio::test]
async fn a_database_that_an_operator_made_read_only_stays_so() {
    let fixture = fresh().await;
    connect(&fixture.url)
        .await
        .batch_execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); \
             END $$",
        )
        .await
        .unwrap();
    let error = refusal(&fixture.url).await;
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error
            .to_string()
            .contains("default_transaction_read_only is on"),
        "{error}"
    );
}
