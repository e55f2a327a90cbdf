//! Integrity checks: orphaned rows, and missing or disabled triggers and constraints.

use onward_store::{RunStateStore as _, Store as _};

use crate::sample::event;
use crate::server::{connect, fresh};

#[tokio::test]
async fn orphaned_and_inconsistent_data_is_found() {
    for (damage, finding) in [
        (
            "ALTER TABLE run_events DISABLE TRIGGER run_events_stay",
            "trigger run_events_stay is missing or disabled",
        ),
        (
            "DROP TRIGGER runs_go_whole ON runs",
            "trigger runs_go_whole is missing or disabled",
        ),
        (
            "ALTER TABLE run_events DROP CONSTRAINT run_events_event_id_unique",
            "run_events_event_id_unique is missing",
        ),
        (
            "DROP TRIGGER runs_go_whole ON runs; DELETE FROM runs WHERE run_id = 'a'",
            "belongs to run a, which does not exist",
        ),
        (
            "DROP TRIGGER run_events_stay_with_their_run ON run_events; DELETE FROM run_events WHERE run_id = 'a'",
            "run a has no events",
        ),
        (
            "INSERT INTO run_snapshots VALUES ('missing', 3, 'CURRENT', true, NULL, '{}', now(), 1)",
            "snapshot of run missing at event 3 exists, but the run does not",
        ),
        (
            "ALTER TABLE run_events DROP CONSTRAINT run_events_event_id_unique; INSERT INTO run_events SELECT 'b', 2, event_id, \
             event_type, emitted_at, tenant_id, project_id, environment_id, plan_id, plan_version, 1, 1, \
             sha256('other'), step_id, payload, extra, persisted_at FROM run_events WHERE run_id = 'a' AND run_seq = 1",
            "is stored 2 times",
        ),
        (
            "UPDATE runs SET projector_is_behind = false",
            "the reader positions of run a do not fit",
        ),
        (
            "UPDATE runs SET delivered_seq = 99, event_bus_is_behind = false",
            "the reader positions of run a do not fit",
        ),
    ] {
        let fixture = fresh().await;
        fixture
            .store
            .append_events(vec![event("a", 1), event("a", 2), event("b", 1)])
            .await
            .unwrap();
        assert_eq!(
            fixture.store.check_integrity().await.unwrap(),
            Vec::<String>::new()
        );
        connect(&fixture.url)
            .await
            .batch_execute(damage)
            .await
            .unwrap();
        let found = fixture.store.check_integrity().await.unwrap();
        assert!(
            found.iter().any(|it| it.contains(finding)),
            "{damage}: {found:?}"
        );
    }
}
