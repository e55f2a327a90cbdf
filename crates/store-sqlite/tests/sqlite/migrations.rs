//! Opening files: new ones, old ones, newer ones, foreign ones.

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
fn a_newer_file_is_left_alone_and_the_reason_is_clear() {
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
            .contains("newer than this program: it is at schema 99 (of_tomorrow)"),
        "{error}"
    );
}

#[test]
fn a_file_whose_schema_was_made_otherwise_is_refused() {
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
fn what_is_no_database_is_refused() {
    let place = Place::new();
    fs::write(
        place.path(),
        "not a database, but long enough to be looked at as if it were one".repeat(100),
    )
    .unwrap();
    assert!(matches!(place.try_open(), Err(Error::Corrupt(_))));
}

#[test]
fn another_programs_database_is_refused() {
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
        "it is left as it was"
    );
}

#[test]
fn a_folder_that_is_not_there_is_said_to_be_the_reason() {
    let place = Place::new();
    let path = place.folder.path().join("absent/store.db");
    let Err(error) =
        onward_store_sqlite::SqliteStore::open(&path, onward_store_sqlite::Options::default())
    else {
        panic!("opened");
    };
    assert!(
        error.to_string().contains("there is no folder") && error.to_string().contains("absent"),
        "{error}"
    );
}

#[test]
fn eight_at_once_make_one_schema() {
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
    assert_eq!(applied, 1);
}

#[tokio::test]
async fn who_only_reads_changes_nothing_and_waits_for_nobody() {
    use onward_store::{RunEventQuery, RunStateStore as _};
    let place = Place::new();
    let read = || {
        onward_store_sqlite::SqliteStore::open_read_only(
            &place.path(),
            onward_store_sqlite::Options::default(),
        )
    };
    assert!(read().is_err() && !place.path().exists(), "nothing is made");
    fs::write(place.path(), "").unwrap();
    assert!(read().is_err());
    assert_eq!(fs::read(place.path()).unwrap(), b"", "nothing is written");
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
    assert!(
        refused.to_string().contains("for reading only"),
        "{refused}"
    );
}
