//! A log that another program has written into the file, with a hole in it.

use std::sync::Arc;

use onward_engine::projector::{Projector, ProjectorOptions};
use onward_engine::verify::{self, VerifyIssueKind};
use onward_runs::{AcceptedKeyForms, RunSeq};
use onward_store::tables::RunSnapshotRow;
use onward_store::{ColumnCodec as _, RecordReader as _, RowKey, RunStateStore as _, Store};
use onward_testing::RunEventGenerator;

use crate::Place;

/// Moves the events from `seq` on up by one, as a writer would have left them that took a number
/// and never used it.
fn punch(place: &Place, seq: u64) {
    let raw = place.raw();
    raw.execute_batch(&format!(
        "DROP TRIGGER run_events_are_never_updated;
         UPDATE run_events SET place = place + 1000 WHERE run_seq >= {seq};
         UPDATE run_events SET place = place - 999 WHERE run_seq >= 1000;"
    ))
    .unwrap();
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
async fn a_hole_stops_the_projector_until_the_whole_log_has_been_read() {
    let place = Place::new();
    let store = place.open();
    let events = RunEventGenerator::new("foreign").next_events(9);
    let run = events[0].run_id.clone();
    store.append_events(events.clone()).await.unwrap();
    punch(&place, 5);
    let mut projector = Projector::new(Arc::clone(&store), ProjectorOptions::default());
    assert_eq!(projector.run_pass().await.unwrap().stale, 1);
    let key = || RowKey(vec![run.to_value()]);
    let (row, _): (RunSnapshotRow, u64) = store.read_record(key()).await.unwrap().unwrap();
    assert_eq!((&*row.condition, row.last_event_seq.as_u64()), ("STALE", 4));
    projector.run_pass().await.unwrap();
    let (row, _): (RunSnapshotRow, u64) = store.read_record(key()).await.unwrap().unwrap();
    assert_eq!(
        (row.is_whole, row.last_event_seq),
        (false, RunSeq::new(10).unwrap())
    );
    assert_eq!(
        findings(&store).await,
        [VerifyIssueKind::Store, VerifyIssueKind::Gap],
        "the trigger that was in the way, and the hole"
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
        "we go on after what is there"
    );
    projector.run_pass().await.unwrap();
    assert_eq!(
        store.get_snapshot(&run).await.unwrap(),
        Some(store.project_snapshot(&run).await.unwrap())
    );
}
