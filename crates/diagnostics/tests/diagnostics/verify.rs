//! Verification of stored run logs.

use std::sync::Arc;

use onward_base::Timestamp;
use onward_diagnostics::verify::{self, VerifyIssue, VerifyIssueKind, VerifyTally};
use onward_engine::projector::{Projector, ProjectorOptions};
use onward_runs::{AcceptedKeyForms, RunEventRecord};
use onward_store::tables::RunSnapshotRow;
use onward_store::{
    ColumnCodec as _, Commit, RecordReader as _, RowKey, RunEventQuery, RunStateStore as _, Store,
};

use crate::editable_store::EditableStore;
use crate::run_script::{run_id, script};

const LOG: &str = "RunStarted, StepStarted a, StepCompleted a, RunCompleted";

async fn findings(store: &EditableStore) -> (VerifyTally, Vec<(Option<u64>, VerifyIssueKind)>) {
    let mut found: Vec<VerifyIssue> = Vec::new();
    let tally = verify::verify_all_runs(
        store,
        None,
        AcceptedKeyForms::V2Only,
        &mut |it| collect(&mut found, it),
        |_| (),
    )
    .await
    .unwrap();
    (
        tally,
        found
            .into_iter()
            .map(|it| (it.run_seq.map(onward_runs::RunSeq::as_u64), it.kind))
            .collect(),
    )
}

fn collect(found: &mut Vec<VerifyIssue>, it: &VerifyIssue) -> std::io::Result<()> {
    found.push(it.clone());
    Ok(())
}

async fn filled() -> Arc<EditableStore> {
    let store = EditableStore::new();
    store.append_events(script("r", LOG)).await.unwrap();
    Projector::new(
        Arc::clone(&store) as Arc<dyn Store>,
        ProjectorOptions::default(),
    )
    .run_pass()
    .await
    .unwrap();
    store
}

#[tokio::test]
async fn a_log_written_by_the_store_has_no_findings() {
    let store = filled().await;
    assert_eq!(
        findings(&store).await,
        (VerifyTally { runs: 1, events: 4 }, Vec::new())
    );
    store.append_events(script("s", LOG)).await.unwrap();
    assert_eq!(
        findings(&store).await,
        (VerifyTally { runs: 2, events: 8 }, Vec::new()),
        "a snapshot may lag"
    );
}

#[tokio::test]
async fn a_missing_event_and_the_snapshot_that_differs_are_found() {
    let store = filled().await;
    store.hide(&run_id("r"), 2);
    assert_eq!(
        findings(&store).await.1,
        [
            (Some(3), VerifyIssueKind::Gap),
            (Some(4), VerifyIssueKind::Snapshot)
        ]
    );
}

#[tokio::test]
async fn a_truncated_log_is_found() {
    let store = filled().await;
    store.hide(&run_id("r"), 4);
    assert_eq!(
        findings(&store).await.1,
        [
            (None, VerifyIssueKind::Head),
            (Some(4), VerifyIssueKind::Snapshot)
        ]
    );
}

#[tokio::test]
async fn a_changed_snapshot_is_found() {
    let store = filled().await;
    let key = RowKey(vec![run_id("r").to_value()]);
    let (row, version): (RunSnapshotRow, u64) = store.read_record(key).await.unwrap().unwrap();
    let changed = RunSnapshotRow {
        snapshot: row.snapshot.replace("COMPLETED", "FAILED").into(),
        ..row
    };
    store
        .commit(Commit::new().update(&changed, version))
        .await
        .unwrap();
    assert_eq!(
        findings(&store).await.1,
        [(Some(4), VerifyIssueKind::Snapshot)]
    );
}

#[tokio::test]
async fn a_single_run_can_be_verified() {
    let store = filled().await;
    store.append_events(script("s", LOG)).await.unwrap();
    let tally = verify::verify_run(
        &*store,
        &run_id("s"),
        AcceptedKeyForms::V2Only,
        &mut |found| panic!("{found}"),
    )
    .await
    .unwrap();
    assert_eq!(tally, VerifyTally { runs: 1, events: 4 });
    assert!(
        verify::verify_run(
            &*store,
            &run_id("missing"),
            AcceptedKeyForms::V2Only,
            &mut |_| Ok(())
        )
        .await
        .is_err()
    );
}

#[tokio::test]
async fn a_missing_snapshot_is_found() {
    let store = filled().await;
    let key = RowKey(vec![run_id("r").to_value()]);
    let (row, version): (RunSnapshotRow, u64) = store.read_record(key).await.unwrap().unwrap();
    store
        .commit(Commit::new().delete(&row, version))
        .await
        .unwrap();
    assert_eq!(
        findings(&store).await.1,
        [(None, VerifyIssueKind::Snapshot)]
    );
}

/// A valid log except for its third event, which this function changes.
async fn with_third(
    change: impl FnOnce(&[RunEventRecord], &mut RunEventRecord),
) -> Vec<(Option<u64>, VerifyIssueKind)> {
    let store = EditableStore::new();
    store.append_events(script("r", LOG)).await.unwrap();
    let events = store
        .fetch_events(&run_id("r"), RunEventQuery::default())
        .await
        .unwrap();
    let mut third = events[2].clone();
    change(&events, &mut third);
    store.alter(third);
    findings(&store).await.1
}

#[tokio::test]
async fn a_change_of_any_field_of_an_event_is_found() {
    let key = with_third(|_, third| third.event.plan_id = "other".parse().unwrap()).await;
    assert_eq!(key, [(Some(3), VerifyIssueKind::IdempotencyKey)]);
    let twice =
        with_third(|all, third| third.event.idempotency_key = all[1].event.idempotency_key).await;
    assert_eq!(
        twice,
        [
            (Some(3), VerifyIssueKind::IdempotencyKey),
            (Some(3), VerifyIssueKind::DuplicateKey)
        ]
    );
    let id = with_third(|all, third| third.event.event_id = all[1].event.event_id).await;
    assert_eq!(id, [(Some(3), VerifyIssueKind::DuplicateEventId)]);
    let shape = with_third(|_, third| third.event.step_id = None).await;
    assert_eq!(shape, [(Some(3), VerifyIssueKind::Event)]);
    let owner = with_third(|_, third| third.event.tenant_id = "another".parse().unwrap()).await;
    assert_eq!(owner, [(Some(3), VerifyIssueKind::Head)]);
    let stamp = with_third(|_, third| third.persisted_at = Timestamp::EPOCH).await;
    assert_eq!(stamp, [(Some(3), VerifyIssueKind::Stamp)]);
}

#[tokio::test]
async fn events_out_of_order_are_found() {
    let store = EditableStore::new();
    store.append_events(script("r", LOG)).await.unwrap();
    let events = store
        .fetch_events(&run_id("r"), RunEventQuery::default())
        .await
        .unwrap();
    let wrong = |at: usize, seq| RunEventRecord {
        run_seq: seq,
        ..events[at].clone()
    };
    let mut found: Vec<VerifyIssue> = Vec::new();
    let log = [
        events[0].clone(),
        wrong(1, events[2].run_seq),
        wrong(2, events[1].run_seq),
        events[3].clone(),
    ];
    store.show(log.to_vec());
    verify::verify_all_runs(
        &*store,
        None,
        AcceptedKeyForms::V2Only,
        &mut |it| collect(&mut found, it),
        |_| (),
    )
    .await
    .unwrap();
    let found: Vec<VerifyIssueKind> = found.into_iter().map(|it| it.kind).collect();
    assert_eq!(
        found,
        [
            VerifyIssueKind::Gap,
            VerifyIssueKind::Order,
            VerifyIssueKind::Gap
        ]
    );
}

#[tokio::test]
async fn an_unreadable_run_does_not_hide_the_others() {
    let store = filled().await;
    store.append_events(script("s", LOG)).await.unwrap();
    store.damage(&run_id("r"));
    store.hide(&run_id("s"), 2);
    assert_eq!(
        findings(&store).await.1,
        [
            (None, VerifyIssueKind::Unreadable),
            (Some(3), VerifyIssueKind::Gap)
        ]
    );
}
