//! What belongs to nothing and what guards no longer is found.

use onward_store::{RunStateStore as _, Store as _};

use crate::sample::event;
use crate::server::{connect, fresh};

#[tokio::test]
async fn whatever_belongs_to_nothing_is_found() {
    for (damage, words) in [
        (
            "ALTER TABLE run_events DISABLE TRIGGER run_events_stay",
            "trigger run_events_stay is gone or switched off",
        ),
        (
            "DROP TRIGGER runs_go_whole ON runs",
            "trigger runs_go_whole is gone or switched off",
        ),
        (
            "ALTER TABLE run_events DROP CONSTRAINT run_events_event_id_unique",
            "run_events_event_id_unique is gone",
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
            "INSERT INTO run_snapshots VALUES ('nobody', 3, 'CURRENT', true, NULL, '{}', now(), 1)",
            "snapshot of run nobody at event 3, and no such run",
        ),
        (
            "ALTER TABLE run_events DROP CONSTRAINT run_events_event_id_unique; INSERT INTO run_events SELECT 'b', 2, event_id, \
             event_type, emitted_at, tenant_id, project_id, environment_id, plan_id, plan_version, 1, 1, \
             sha256('other'), step_id, payload, extra, persisted_at FROM run_events WHERE run_id = 'a' AND run_seq = 1",
            "is there 2 times",
        ),
        (
            "UPDATE runs SET projector_is_behind = false",
            "where the readers of run a stand",
        ),
        (
            "UPDATE runs SET delivered_seq = 99, event_bus_is_behind = false",
            "where the readers of run a stand",
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
            found.iter().any(|it| it.contains(words)),
            "{damage}: {found:?}"
        );
    }
}
