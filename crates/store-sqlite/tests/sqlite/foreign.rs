//! A log with a gap, written into the file by another program.

use std::sync::Arc;

use onward_diagnostics::verify::{self, VerifyIssueKind};
use onward_engine::projector::{Projector, ProjectorOptions};
use onward_runs::{AcceptedKeyForms, RunEventRecord, RunSeq};
use onward_store::tables::{RunSnapshotRow, SnapshotCondition};
use onward_store::{
    ColumnCodec as _, RecordReader as _, RowKey, RunEventQuery, RunStateStore as _, Store,
    event_checksum,
};
use onward_testing::RunEventGenerator;

use crate::Place;

/// Increments the sequence of the events from `seq` on, like a writer that reserved a number and
/// did not use it.
fn create_gap(place: &Place, seq: u64, records: &[RunEventRecord]) {
    let raw = place.raw();
    raw.execute_batch(&format!(
        "DROP TRIGGER run_events_are_never_updated;
         UPDATE run_events SET place = place + 1000 WHERE run_seq >= {seq};
         UPDATE run_events SET place = place - 999 WHERE run_seq >= 1000;"
    ))
    .unwrap();
    for record in records.iter().filter(|it| it.run_seq.as_u64() >= seq) {
        let moved = record.run_seq.next_seq();
        let checksum = event_checksum::event_checksum(&record.event, moved, record.persisted_at);
        raw.execute(
            "UPDATE run_events SET checksum = ?1 WHERE event_id = ?2",
            (checksum, record.event.event_id.as_bytes().as_slice()),
        )
        .unwrap();
    }
}

async fn findings(store: &Arc<dyn Store>) -> Vec<VerifyIssueKind> {
    let mut found = Vec::new();
    let mut note = |it: &verify::VerifyIssue| -> std::io::Result<()> {
        found.push(it.kind);
        Ok(())
    };
    verify::verify_all_runs(&**store, None, AcceptedKeyForms::V2Only, &mut note, |_| ())
        .await
        .unwrap();
    found
}

#[tokio::test]
async fn a_gap_stops_the_projector_until_it_has_read_the_whole_log() {
    let place = Place::new();
    let store = place.open();
    let events = RunEventGenerator::new("foreign").next_events(9);
    let run = events[0].run_id.clone();
    store.append_events(events.clone()).await.unwrap();
    let records = store
        .read_run_events(&run, RunEventQuery::default())
        .await
        .unwrap();
    create_gap(&place, 5, &records);
    let mut projector = Projector::new(Arc::clone(&store), ProjectorOptions::default());
    assert_eq!(projector.run_pass().await.unwrap().stale, 1);
    let key = || RowKey(vec![run.to_value()]);
    let (row, _): (RunSnapshotRow, u64) = store.read_record(key()).await.unwrap().unwrap();
    assert_eq!(
        (row.condition, row.last_event_seq.as_u64()),
        (SnapshotCondition::Stale, 4)
    );
    projector.run_pass().await.unwrap();
    let (row, _): (RunSnapshotRow, u64) = store.read_record(key()).await.unwrap().unwrap();
    assert_eq!(
        (row.is_whole, row.last_event_seq),
        (false, RunSeq::new(10).unwrap())
    );
    assert_eq!(
        findings(&store).await,
        [VerifyIssueKind::Store, VerifyIssueKind::Gap],
        "the missing trigger and the gap"
    );
    let more = RunEventGenerator::new("foreign")
        .next_events(12)
        .split_off(9);
    assert_eq!(
        store.append_events(more).await.unwrap()[0]
            .result
            .run_seq
            .as_u64(),
        11,
        "new events continue the stored sequence"
    );
    projector.run_pass().await.unwrap();
    assert_eq!(
        store.get_snapshot(&run).await.unwrap(),
        Some(store.project_snapshot(&run).await.unwrap())
    );
}
