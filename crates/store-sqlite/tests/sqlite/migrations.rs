//! Opening files: new, old, newer and foreign ones.

use std::fs;
use std::thread;

use onward_store::{Error, StoreErrorKind};

use crate::Place;

#[test]
fn opening_twice_changes_nothing() {
    let place = Place::new();
    drop(place.open());
    let count = |place: &Place| {
        place
            .raw()
            .query_row("SELECT count(*) FROM onward_migrations", [], |row| {
                row.get(0)
            })
    };
    let before: i64 = count(&place).unwrap();
    drop(place.open());
    assert_eq!(count(&place), Ok(before));
}

#[test]
fn a_newer_file_is_rejected_with_a_clear_error() {
    let place = Place::new();
    drop(place.open());
    place
        .raw()
        .execute(
            "INSERT INTO onward_migrations VALUES (99, 'of_tomorrow', 'ab', 0)",
            [],
        )
        .unwrap();
    let Err(error) = place.try_open() else {
        panic!("opened")
    };
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error
            .to_string()
            .contains("newer than this program: its schema is 99 (of_tomorrow)"),
        "{error}"
    );
}

#[test]
fn a_file_with_a_changed_migration_is_rejected() {
    let place = Place::new();
    drop(place.open());
    place
        .raw()
        .execute(
            "UPDATE onward_migrations SET checksum = 'other' WHERE number = 1",
            [],
        )
        .unwrap();
    assert!(matches!(place.try_open(), Err(Error::Unusable(_))));
}

#[test]
fn a_store_without_a_record_of_its_migrations_is_rejected_in_words() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    raw.execute("DELETE FROM onward_migrations", []).unwrap();
    let Err(error) = place.try_open() else {
        panic!("opened")
    };
    assert_eq!(error.kind(), StoreErrorKind::Fatal);
    assert!(
        error.to_string().contains("onward_migrations is empty"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_a_database_is_rejected() {
    let place = Place::new();
    fs::write(
        place.path(),
        "not a database, but long enough to be read as one".repeat(100),
    )
    .unwrap();
    assert!(matches!(place.try_open(), Err(Error::Corrupt(_))));
}

#[test]
fn a_database_of_another_program_is_rejected() {
    let place = Place::new();
    place
        .raw()
        .execute_batch("CREATE TABLE customers (name TEXT)")
        .unwrap();
    let before = fs::read(place.path()).unwrap();
    let Err(error) = place.try_open() else {
        panic!("opened")
    };
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(
        fs::read(place.path()).unwrap(),
        before,
        "the file is unchanged"
    );
}

#[test]
fn a_missing_directory_is_named_in_the_error() {
    let place = Place::new();
    let path = place.folder.path().join("absent/store.db");
    let Err(error) =
        onward_store_sqlite::SqliteStore::open(&path, onward_store_sqlite::Options::default())
    else {
        panic!("opened");
    };
    assert!(
        error.to_string().contains("the directory") && error.to_string().contains("absent"),
        "{error}"
    );
}

#[test]
fn concurrent_opens_create_one_schema() {
    let place = Place::new();
    thread::scope(|scope| {
        for opened in (0..8)
            .map(|_| scope.spawn(|| place.try_open().map(drop)))
            .collect::<Vec<_>>()
        {
            opened.join().unwrap().unwrap();
        }
    });
    let applied: i64 = place
        .raw()
        .query_row("SELECT count(*) FROM onward_migrations", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(applied, 3);
}

#[tokio::test]
async fn a_read_only_open_changes_nothing_and_does_not_wait() {
    use onward_store::{RunEventQuery, RunStateStore as _};
    let place = Place::new();
    let read = || {
        onward_store_sqlite::SqliteStore::open_read_only(
            &place.path(),
            onward_store_sqlite::Options::default(),
        )
    };
    assert!(
        read().is_err() && !place.path().exists(),
        "no file is created"
    );
    fs::write(place.path(), "").unwrap();
    assert!(read().is_err());
    assert_eq!(
        fs::read(place.path()).unwrap(),
        b"",
        "the file is unchanged"
    );
    let events = onward_testing::RunEventGenerator::new("read").next_events(3);
    place.open().append_events(events.clone()).await.unwrap();
    let writer = place.raw();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let store = read().unwrap();
    assert_eq!(
        store
            .fetch_events(&events[0].run_id, RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        3
    );
    let refused = store.append_events(events).await.unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
}
