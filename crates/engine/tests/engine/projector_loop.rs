//! The projector loop: its timing, notifications and metrics.

use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use onward_engine::projector::{Projector, ProjectorOptions};
use onward_runs::RunSeq;
use onward_store::{RunStateStore as _, Store};

use crate::editable_store::EditableStore;
use crate::run_script::{run_id, script};

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_never_more_than_a_second_behind() {
    let store = EditableStore::new();
    let working = tokio::spawn(
        Projector::new(
            Arc::clone(&store) as Arc<dyn Store>,
            ProjectorOptions::default(),
        )
        .run(),
    );
    for step in 0..50 {
        let text = format!(
            "RunStarted{}",
            (0..step)
                .map(|step| format!(", StepStarted s{step}"))
                .collect::<String>()
        );
        store.append_events(script("r", &text)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        let snapshot = store.get_snapshot(&run_id("r")).await.unwrap().unwrap();
        assert_eq!(snapshot.last_event_seq, RunSeq::new(step + 1).unwrap());
    }
    working.abort();
}

#[tokio::test(start_paused = true)]
async fn a_notification_starts_a_pass_at_once() {
    let store = EditableStore::new();
    let projector = Projector::new(
        Arc::clone(&store) as Arc<dyn Store>,
        ProjectorOptions {
            poll_interval: Duration::from_secs(3_600),
            ..ProjectorOptions::default()
        },
    );
    let wake = projector.wake_handle();
    let working = tokio::spawn(projector.run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    store
        .append_events(script("r", "RunStarted"))
        .await
        .unwrap();
    wake.notify_one();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(store.get_snapshot(&run_id("r")).await.unwrap().is_some());
    working.abort();
}

#[tokio::test(start_paused = true)]
async fn missing_events_that_appear_are_found_by_the_loop() {
    let (store, run) = (EditableStore::new(), run_id("r"));
    store
        .append_events(script("r", "RunStarted, StepStarted a, StepCompleted a"))
        .await
        .unwrap();
    store.hide(&run, 2);
    let working = tokio::spawn(
        Projector::new(
            Arc::clone(&store) as Arc<dyn Store>,
            ProjectorOptions::default(),
        )
        .run(),
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.reveal(&run, 2);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(
        store.get_snapshot(&run).await.unwrap(),
        Some(store.project_snapshot(&run).await.unwrap())
    );
    working.abort();
}

#[tokio::test(start_paused = true)]
async fn a_short_store_outage_only_delays_the_projector() {
    let store = EditableStore::new();
    store
        .append_events(script("r", "RunStarted"))
        .await
        .unwrap();
    store.fail_commit(1);
    let working = tokio::spawn(
        Projector::new(
            Arc::clone(&store) as Arc<dyn Store>,
            ProjectorOptions::default(),
        )
        .run(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(store.get_snapshot(&run_id("r")).await.unwrap().is_some());
    working.abort();
}

#[tokio::test]
async fn the_projector_reports_metrics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let guard = metrics::set_default_local_recorder(&recorder);
    let store = EditableStore::new();
    store
        .append_events(script("r", "RunStarted, RunStarted"))
        .await
        .unwrap();
    store
        .append_events(script("s", "RunStarted, RunResumed"))
        .await
        .unwrap();
    store.clock.advance_ms(6_000);
    Projector::new(
        Arc::clone(&store) as Arc<dyn Store>,
        ProjectorOptions::default(),
    )
    .run_pass()
    .await
    .unwrap();
    drop(guard);
    let mut seen: Vec<(String, DebugValue)> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<&str> = key.key().labels().map(|label| label.value()).collect();
        seen.push((
            format!("{} {}", key.key().name(), labels.join(" "))
                .trim()
                .to_owned(),
            value,
        ));
    }
    for expected in [
        (
            "onward_projector_lag_seconds",
            DebugValue::Gauge(6.0.into()),
        ),
        ("onward_projector_events_total", DebugValue::Counter(3)),
        (
            "onward_alerts_total PROJECTOR_LAG_HIGH P2",
            DebugValue::Counter(1),
        ),
        (
            "onward_alerts_total INVALID_TRANSITION P2",
            DebugValue::Counter(1),
        ),
    ] {
        assert!(
            seen.iter()
                .any(|(name, value)| (name.as_str(), value) == (expected.0, &expected.1)),
            "{expected:?}: {seen:?}"
        );
    }
}
