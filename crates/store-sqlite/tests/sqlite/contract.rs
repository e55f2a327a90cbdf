//! The database itself keeps the execution contract of campaigns, whoever writes to it.

use crate::Place;
use crate::statements as contract;

const NOW: &str = "0";

#[test]
fn what_breaks_the_contract_is_refused_and_what_keeps_it_is_not() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for row in contract::rows(NOW) {
        raw.execute_batch(&row).unwrap();
    }
    for (what, row) in contract::broken(NOW) {
        assert!(raw.execute_batch(&row).is_err(), "{what}: {row}");
    }
    for row in contract::sound(NOW) {
        raw.execute_batch(&row).unwrap();
    }
}

#[test]
fn the_trace_of_a_campaign_is_what_its_query_says() {
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
