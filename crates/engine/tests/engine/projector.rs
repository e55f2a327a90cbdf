//! The projector, pass by pass: complete logs, logs with gaps, changed logs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onward_engine::projector::{Projector, ProjectorOptions, ProjectorPass};
use onward_runs::{RunId, RunSnapshot, RunStatus};
use onward_store::tables::{AlertRow, RunSnapshotRow, SnapshotCondition};
use onward_store::{
    ColumnCodec as _, Commit, RecordReader as _, RowChange, RowKey, RunStateStore as _, Store,
    TableScan,
};

use crate::editable_store::EditableStore;
use crate::run_script::{run_id, script};

const WHOLE: &str =
    "RunStarted, StepStarted a, StepStarted b, StepCompleted a, StepCompleted b, RunCompleted";

fn projector(store: &Arc<EditableStore>) -> Projector {
    Projector::new(
        Arc::clone(store) as Arc<dyn Store>,
        ProjectorOptions {
            page_size: 2,
            ..ProjectorOptions::default()
        },
    )
}

async fn kept(store: &EditableStore, run: &RunId) -> RunSnapshotRow {
    store
        .read_record::<RunSnapshotRow>(RowKey(vec![run.to_value()]))
        .await
        .unwrap()
        .unwrap()
        .0
}

async fn snapshot(store: &EditableStore, run: &RunId) -> RunSnapshot {
    kept(store, run).await.decode_snapshot().unwrap()
}

async fn alerts(store: &EditableStore) -> Vec<(String, String, String)> {
    let rows: Vec<(AlertRow, u64)> = store
        .list_records(TableScan::all_rows::<AlertRow>())
        .await
        .unwrap();
    let described = |(alert, _): (AlertRow, u64)| {
        (
            alert.code.to_string(),
            alert.severity.to_string(),
            alert.subject.to_string(),
        )
    };
    rows.into_iter().map(described).collect()
}

fn gap(severity: &str) -> (String, String, String) {
    (
        "PROJECTOR_GAP_DETECTED".to_owned(),
        severity.to_owned(),
        "r".to_owned(),
    )
}

#[tokio::test]
async fn a_pass_brings_every_run_up_to_date() {
    let store = EditableStore::new();
    for run in ["r", "s", "t"] {
        store.append_events(script(run, WHOLE)).await.unwrap();
    }
    let pass = projector(&store).run_pass().await.unwrap();
    assert_eq!(
        pass,
        ProjectorPass {
            runs: 3,
            events: 18,
            ..ProjectorPass::default()
        }
    );
    for run in ["r", "s", "t"].map(run_id) {
        assert_eq!(
            snapshot(&store, &run).await,
            store.project_snapshot(&run).await.unwrap()
        );
    }
    assert_eq!(
        projector(&store).run_pass().await.unwrap(),
        ProjectorPass::default()
    );
    assert!(alerts(&store).await.is_empty());
}

#[tokio::test]
async fn a_crash_at_any_commit_is_repaired_by_the_next_pass() {
    for nth in 1..=4 {
        let store = EditableStore::new();
        store.append_events(script("r", WHOLE)).await.unwrap();
        store.fail_commit(nth);
        let crashed = projector(&store).run_pass().await.unwrap();
        assert_eq!(crashed.failed, usize::from(nth <= 3), "commit {nth}");
        store.fail_commit(0);
        projector(&store).run_pass().await.unwrap();
        let run = run_id("r");
        assert_eq!(
            snapshot(&store, &run).await,
            store.project_snapshot(&run).await.unwrap()
        );
    }
}

#[tokio::test]
async fn at_a_gap_the_snapshot_does_not_advance_and_is_stale() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store.append_events(script("r", WHOLE)).await.unwrap();
    store.hide(&run, 4);
    let pass = projector(&store).run_pass().await.unwrap();
    assert_eq!((pass.stale, pass.events), (1, 3));
    let row = kept(&store, &run).await;
    assert_eq!(
        (row.condition, row.last_event_seq.as_u64()),
        (SnapshotCondition::Stale, 3)
    );
    assert_eq!(alerts(&store).await, [gap("P2")]);
}

#[tokio::test]
async fn a_gap_that_closes_in_time_leaves_no_trace() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store.append_events(script("r", WHOLE)).await.unwrap();
    store.hide(&run, 4);
    projector(&store).run_pass().await.unwrap();
    store.reveal(&run, 4);
    projector(&store).run_pass().await.unwrap();
    let row = kept(&store, &run).await;
    assert_eq!(
        (row.condition, row.is_whole, row.holes),
        (SnapshotCondition::Current, true, None)
    );
    assert_eq!(snapshot(&store, &run).await.status, RunStatus::Completed);
}

#[tokio::test]
async fn a_gap_is_accepted_and_filled_when_its_event_appears() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store.append_events(script("r", WHOLE)).await.unwrap();
    store.hide(&run, 4);
    let mut projector = projector(&store);
    projector.run_pass().await.unwrap();
    projector.run_pass().await.unwrap();
    let row = kept(&store, &run).await;
    assert_eq!((row.is_whole, row.last_event_seq.as_u64()), (false, 6));
    assert_eq!(row.holes.as_deref(), Some("[[4,4]]"));
    assert_eq!(projector.recheck_gaps().await.unwrap(), 0);
    store.reveal(&run, 4);
    assert_eq!(projector.recheck_gaps().await.unwrap(), 1);
    let row = kept(&store, &run).await;
    assert_eq!(
        (row.condition, row.is_whole),
        (SnapshotCondition::Current, true)
    );
    assert_eq!(
        row.decode_snapshot().unwrap(),
        store.project_snapshot(&run).await.unwrap()
    );
    assert_eq!(
        alerts(&store).await.len(),
        2,
        "the gap, and RunCompleted, which is illegal without it"
    );
}

#[tokio::test]
async fn missing_ranges_that_cannot_be_read_are_found_again() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store.append_events(script("r", WHOLE)).await.unwrap();
    store.hide(&run, 4);
    let mut projector = projector(&store);
    projector.run_pass().await.unwrap();
    projector.run_pass().await.unwrap();
    damage_missing_ranges(&store, &run).await;
    assert_eq!(projector.recheck_gaps().await.unwrap(), 1);
    assert_eq!(kept(&store, &run).await.holes.as_deref(), Some("[[4,4]]"));
}

async fn damage_missing_ranges(store: &EditableStore, run: &RunId) {
    let key = RowKey(vec![run.to_value()]);
    let (mut row, version): (RunSnapshotRow, u64) = store.read_record(key).await.unwrap().unwrap();
    row.holes = Some("[[4,".into());
    let mut commit = Commit::new();
    commit.changes.push(RowChange::update(&row, version));
    store.commit(commit).await.unwrap();
}

/// Every subset of the six events is missing at first, and each missing event appears after every
/// number of passes.
#[tokio::test]
async fn any_order_of_missing_events_gives_the_same_snapshot() {
    let run = run_id("r");
    for missing in 0_u32..1 << 6 {
        for passes in 0..4 {
            let store = EditableStore::new();
            store.append_events(script("r", WHOLE)).await.unwrap();
            let hidden: Vec<u64> = (1..=6)
                .filter(|seq| missing & (1 << (seq - 1)) != 0)
                .collect();
            hidden.iter().for_each(|seq| store.hide(&run, *seq));
            let mut projector = projector(&store);
            for _ in 0..passes {
                projector.run_pass().await.unwrap();
                assert_matches_visible_log(&store, &run).await;
            }
            hidden.iter().for_each(|seq| store.reveal(&run, *seq));
            for _ in 0..3 {
                projector.run_pass().await.unwrap();
                projector.recheck_gaps().await.unwrap();
            }
            let row = kept(&store, &run).await;
            assert_eq!(
                row.decode_snapshot().unwrap(),
                store.project_snapshot(&run).await.unwrap(),
                "{hidden:?} for {passes} passes"
            );
            assert!(
                row.is_whole && row.condition == SnapshotCondition::Current,
                "{hidden:?} for {passes} passes: {row:?}"
            );
        }
    }
}

/// The snapshot always equals the visible log reduced up to its watermark.
async fn assert_matches_visible_log(store: &Arc<EditableStore>, run: &RunId) {
    let Some((row, _)) = store
        .read_record::<RunSnapshotRow>(RowKey(vec![run.to_value()]))
        .await
        .unwrap()
    else {
        return;
    };
    let events = store
        .fetch_events(run, onward_store::RunEventQuery::default())
        .await
        .unwrap();
    let upto = events
        .iter()
        .filter(|event| event.run_seq <= row.last_event_seq);
    assert_eq!(
        row.decode_snapshot().unwrap(),
        onward_runs::project_run(run.clone(), upto)
    );
}

#[tokio::test]
async fn permanently_missing_events_raise_an_alert() {
    for gone in [3..=3, 2..=3, 1..=3] {
        let (store, run) = (EditableStore::new(), run_id("r"));
        store
            .append_events(script("r", "RunStarted, StepStarted a"))
            .await
            .unwrap();
        projector(&store).run_pass().await.unwrap();
        store
            .append_events(script("r", "RunStarted, StepStarted a, StepCompleted a"))
            .await
            .unwrap();
        gone.for_each(|seq| store.hide(&run, seq));
        for severities in [
            vec![gap("P2")],
            vec![gap("P2"), gap("P1")],
            vec![gap("P2"), gap("P1")],
        ] {
            assert_eq!(projector(&store).run_pass().await.unwrap().stale, 1);
            assert_eq!(alerts(&store).await, severities);
        }
        let row = kept(&store, &run).await;
        assert_eq!(
            (row.condition, row.last_event_seq.as_u64()),
            (SnapshotCondition::Stale, 2),
            "the snapshot keeps what it had"
        );
        (1..=3).for_each(|seq| store.reveal(&run, seq));
        projector(&store).run_pass().await.unwrap();
        assert_eq!(
            snapshot(&store, &run).await,
            store.project_snapshot(&run).await.unwrap()
        );
    }
}

#[tokio::test]
async fn an_illegal_event_is_ignored_and_raises_one_alert() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store
        .append_events(script(
            "r",
            "RunStarted, RunApproved, StepCompleted a, RunResumed",
        ))
        .await
        .unwrap();
    projector(&store).run_pass().await.unwrap();
    let row = kept(&store, &run).await;
    assert_eq!(row.condition, SnapshotCondition::Inconsistent);
    let found = row.decode_snapshot().unwrap();
    assert_eq!(
        (found.status, found.inconsistencies.unwrap().count),
        (RunStatus::Running, 2)
    );
    let invalid = [(
        "INVALID_TRANSITION".to_owned(),
        "P2".to_owned(),
        "r".to_owned(),
    )];
    assert_eq!(alerts(&store).await, invalid);
    store
        .append_events(script(
            "r",
            "RunStarted, RunApproved, StepCompleted a, RunResumed, RunQueued",
        ))
        .await
        .unwrap();
    projector(&store).run_pass().await.unwrap();
    assert_eq!(alerts(&store).await, invalid);
}

#[tokio::test]
async fn a_damaged_snapshot_is_rebuilt_from_the_log() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store
        .append_events(script("r", "RunStarted, StepStarted a"))
        .await
        .unwrap();
    projector(&store).run_pass().await.unwrap();
    let damaged = RunSnapshotRow {
        snapshot: "{\"runId\":7".into(),
        ..kept(&store, &run).await
    };
    store
        .commit(Commit::new().update(&damaged, 1))
        .await
        .unwrap();
    store.append_events(script("r", WHOLE)).await.unwrap();
    projector(&store).run_pass().await.unwrap();
    assert_eq!(
        snapshot(&store, &run).await,
        store.project_snapshot(&run).await.unwrap()
    );
}

#[tokio::test]
async fn two_projectors_share_the_runs() {
    let store = EditableStore::new();
    for run in 0..40 {
        store
            .append_events(script(&format!("run-{run}"), WHOLE))
            .await
            .unwrap();
    }
    let (mut first, mut second) = (projector(&store), projector(&store));
    let (first, second) = tokio::join!(first.run_pass(), second.run_pass());
    assert!(
        first.unwrap().failed + second.unwrap().failed > 0,
        "the commits conflicted, and one was refused"
    );
    projector(&store).run_pass().await.unwrap();
    for run in (0..40).map(|run| run_id(&format!("run-{run}"))) {
        assert_eq!(
            snapshot(&store, &run).await,
            store.project_snapshot(&run).await.unwrap()
        );
    }
}

#[tokio::test]
async fn a_high_lag_raises_one_alert_until_it_is_normal_again() {
    let store = EditableStore::new();
    let mut projector = projector(&store);
    for (wait_ms, described) in [(4_900, 0), (5_100, 1), (7_000, 1), (500, 1), (60_000, 2)] {
        let run = format!("run-{wait_ms}");
        store
            .append_events(script(&run, "RunStarted"))
            .await
            .unwrap();
        store.clock.advance_ms(wait_ms);
        assert_eq!(projector.run_pass().await.unwrap().lag_ms, wait_ms);
        let lagging = alerts(&store)
            .await
            .iter()
            .filter(|(code, ..)| code == "PROJECTOR_LAG_HIGH")
            .count();
        assert_eq!(lagging, described, "after {wait_ms} ms");
    }
}

#[tokio::test]
async fn a_truncated_log_is_not_read_repeatedly() {
    let store = EditableStore::new();
    store
        .append_events(script("r", "RunStarted, StepStarted a, StepCompleted a"))
        .await
        .unwrap();
    store.hide(&run_id("r"), 3);
    let mut projector = projector(&store);
    for _ in 0..2 {
        assert_eq!(projector.run_pass().await.unwrap().stale, 1);
    }
    let reads = || store.reads.load(Ordering::SeqCst);
    let before = reads();
    for _ in 0..10 {
        assert_eq!(
            projector.run_pass().await.unwrap().stale,
            1,
            "the snapshot still lags"
        );
    }
    assert_eq!(reads(), before, "the head is unchanged");
    projector.recheck_gaps().await.unwrap();
    assert_eq!(projector.run_pass().await.unwrap().stale, 1);
    assert!(reads() > before, "the event may have appeared");
    store.reveal(&run_id("r"), 3);
    store
        .append_events(
            script(
                "r",
                "RunStarted, StepStarted a, StepCompleted a, RunCompleted",
            )
            .split_off(3),
        )
        .await
        .unwrap();
    assert_eq!(
        projector.run_pass().await.unwrap().stale,
        0,
        "a changed log is read at once"
    );
}
