//! The database itself enforces the execution contract of campaigns, for every client.

use crate::Place;
use crate::statements as contract;

const NOW: &str = "0";

#[test]
fn invalid_rows_are_rejected_and_valid_rows_are_accepted() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for row in contract::rows(NOW) {
        raw.execute_batch(&row).unwrap();
    }
    for (what, row) in contract::invalid_rows(NOW) {
        assert!(raw.execute_batch(&row).is_err(), "{what}: {row}");
    }
    for row in contract::valid_rows(NOW) {
        raw.execute_batch(&row).unwrap();
    }
}

#[test]
fn the_documented_query_returns_the_trace_of_a_campaign() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for row in contract::rows(NOW) {
        raw.execute_batch(&row).unwrap();
    }
    let mut statement = raw.prepare(contract::TRACE).unwrap();
    let traced = statement.query_map([], |row| {
        Ok((
            row.get::<_, String>("run_id")?,
            row.get::<_, String>("job_status")?,
            row.get::<_, String>("outbox_status")?,
        ))
    });
    let traced: Vec<_> = traced.unwrap().map(Result::unwrap).collect();
    assert_eq!(
        traced,
        [("run".to_owned(), "queued".to_owned(), "sent".to_owned())]
    );
}
