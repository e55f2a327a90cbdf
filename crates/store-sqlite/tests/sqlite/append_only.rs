//! The database itself rejects changes of stored events and journals.

use std::sync::Arc;

use onward_journal::ExecutionId;
use onward_store::{Commit, JournalAppend, PurgeTarget, RunEventQuery, RunStateStore as _, Store};
use onward_testing::RunEventGenerator;
use rusqlite::Connection;

use crate::Place;

async fn filled(place: &Place) -> Arc<dyn Store> {
    let store = place.open();
    store
        .append_events(RunEventGenerator::new("kept").next_events(10))
        .await
        .unwrap();
    let execution = ExecutionId::from_bytes([7; 32]);
    // As many events as one block of the journal index.
    for part in 0..64 {
        let append = JournalAppend {
            execution,
            expected_length: 2 * part,
            count: 2,
            records: [1, 2, 3].into(),
        };
        store
            .commit(Commit::new().append_journal(append))
            .await
            .unwrap();
    }
    store
}

fn refusal(raw: &Connection, sql: &str) -> String {
    raw.execute(sql, []).expect_err(sql).to_string()
}

#[tokio::test]
async fn events_can_neither_be_updated_nor_deleted() {
    let place = Place::new();
    let store = filled(&place).await;
    let raw = place.raw();
    for (sql, words) in [
        (
            "UPDATE run_events SET payload = '{}' WHERE run_seq = 3",
            "never updated",
        ),
        (
            "UPDATE run_events SET place = 99 WHERE run_seq = 3",
            "never updated",
        ),
        (
            "DELETE FROM run_events WHERE run_seq = 3",
            "delete the whole run",
        ),
        ("DELETE FROM run_events", "delete the whole run"),
        ("UPDATE journal SET records = x'00'", "never updated"),
        ("UPDATE journals SET journal_no = 99", "keeps its name"),
        ("DELETE FROM journals", "after its events"),
        ("UPDATE journal_index SET place = 99", "stays where it is"),
        ("DELETE FROM journal_index", "delete its events first"),
        ("UPDATE runs SET run_no = 99", "keeps its name"),
        ("UPDATE runs SET tenant_id = 'other'", "and its owner"),
    ] {
        assert!(refusal(&raw, sql).contains(words), "{sql}");
    }
    let run = RunEventGenerator::new("kept")
        .next_events(1)
        .remove(0)
        .run_id;
    assert_eq!(
        store
            .fetch_events(&run, RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        10
    );
}

#[tokio::test]
async fn deleting_a_run_deletes_all_its_data() {
    let place = Place::new();
    let store = filled(&place).await;
    let events = RunEventGenerator::new("kept").next_events(10);
    let run = events[0].run_id.clone();
    assert!(store.purge(PurgeTarget::Run(run.clone())).await.unwrap());
    assert!(!store.purge(PurgeTarget::Run(run)).await.unwrap());
    let left = |table: &str| {
        place
            .raw()
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get::<_, i64>(0)
            })
    };
    assert_eq!(
        ["runs", "run_events", "event_ids"].map(|table| left(table).unwrap()),
        [0, 0, 0]
    );
    let again = store.append_events(events).await.unwrap();
    assert!(
        again
            .iter()
            .zip(1..)
            .all(|(it, seq)| it.result.persisted && it.result.run_seq.as_u64() == seq)
    );
}
