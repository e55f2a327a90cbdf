//! Integrity checks: orphaned rows, edited events, and missing or changed triggers, functions and
//! constraints. Also the plans of lists.

use onward_store::{
    Error, RunEventQuery, RunStateStore as _, Store as _, StoreErrorKind, read_readable_events,
};

use crate::sample::{event, run};
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
             sha256('other'), step_id, payload, extra, persisted_at, checksum FROM run_events WHERE run_id = 'a' AND run_seq = 1",
            "is stored 2 times",
        ),
        (
            "CREATE OR REPLACE FUNCTION onward_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "function onward_refuse differs from its definition",
        ),
        (
            "DROP TRIGGER run_events_stay ON run_events; CREATE TRIGGER run_events_stay BEFORE UPDATE OR TRUNCATE \
             ON run_events WHEN (false) EXECUTE FUNCTION onward_refuse()",
            "trigger run_events_stay is missing or disabled",
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

/// Opens a connection that changes rows without the triggers that prevent it.
async fn without_triggers(url: &str) -> tokio_postgres::Client {
    let client = connect(url).await;
    client
        .batch_execute("SET session_replication_role = replica")
        .await
        .unwrap();
    client
}

#[tokio::test]
async fn edited_events_are_found_and_the_others_are_read() {
    for edit in [
        "payload = '{}'",
        "emitted_at = '2020-01-01T00:00:00Z'",
        "engine_attempt_id = 7",
        "persisted_at = persisted_at + interval '1 microsecond'",
        "tenant_id = 'another'",
    ] {
        let fixture = fresh().await;
        let events = (1..=5).map(|step| event("a", step)).collect();
        fixture.store.append_events(events).await.unwrap();
        let edit = format!("UPDATE run_events SET {edit} WHERE run_seq = 3");
        without_triggers(&fixture.url)
            .await
            .batch_execute(&edit)
            .await
            .unwrap();
        let read = read_readable_events(&fixture.store, &run("a"), RunEventQuery::default())
            .await
            .unwrap();
        let (seq, reason) = read.unreadable.unwrap();
        assert_eq!((read.events.len(), seq.as_u64()), (2, 3), "{edit}");
        assert!(reason.contains("the checksum does not match"), "{reason}");
        let after = RunEventQuery::starting_after(seq);
        let rest = fixture.store.read_run_events(&run("a"), after).await;
        assert_eq!(rest.unwrap().len(), 2);
        let repeated = fixture.store.append_events(vec![event("a", 3)]).await;
        assert_eq!(repeated.unwrap_err().kind(), StoreErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn events_that_swapped_their_positions_are_found() {
    let fixture = fresh().await;
    let events = vec![event("a", 1), event("a", 2), event("a", 3)];
    fixture.store.append_events(events).await.unwrap();
    without_triggers(&fixture.url)
        .await
        .batch_execute(
            "UPDATE run_events SET run_seq = 9 WHERE run_seq = 2; UPDATE run_events SET run_seq = 2 WHERE run_seq = 3;
             UPDATE run_events SET run_seq = 3 WHERE run_seq = 9",
        )
        .await
        .unwrap();
    let read = fixture
        .store
        .read_run_events(&run("a"), RunEventQuery::default())
        .await;
    assert!(matches!(read, Err(Error::UnreadableEvent { run_seq, .. }) if run_seq.as_u64() == 2));
}

/// Events that were stored before schema 3 have no checksum; no other event can lose its own.
#[tokio::test]
async fn only_events_of_earlier_schemas_have_no_checksum() {
    let fixture = fresh().await;
    fixture
        .store
        .append_events(vec![event("a", 1), event("a", 2)])
        .await
        .unwrap();
    let client = without_triggers(&fixture.url).await;
    let strip = "UPDATE run_events SET checksum = NULL WHERE run_seq = 1";
    assert!(client.batch_execute(strip).await.is_err());
    client
        .batch_execute(&format!(
            "ALTER TABLE run_events DROP CONSTRAINT run_events_checksum_check; {strip};
             ALTER TABLE run_events ADD CONSTRAINT run_events_checksum_check CHECK (checksum IS NOT NULL) NOT VALID"
        ))
        .await
        .unwrap();
    let read = fixture
        .store
        .read_run_events(&run("a"), RunEventQuery::default())
        .await;
    assert_eq!(read.unwrap().len(), 2);
}

#[tokio::test]
async fn lists_of_executions_are_read_from_an_index() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        .await
        .unwrap();
    for (sql, index) in [
        (
            "SELECT * FROM executions WHERE tenant_id = 't' AND project_id = 'p' AND environment_id = 'e' AND state = 's' \
             ORDER BY tenant_id DESC, project_id DESC, environment_id DESC, state DESC, created_at DESC, execution_id DESC \
             LIMIT 9",
            "executions_by_state",
        ),
        (
            "SELECT * FROM executions WHERE tenant_id = 't' AND project_id = 'p' AND environment_id = 'e' AND function = 'f' \
             AND state = 's' ORDER BY tenant_id, project_id, environment_id, function, state, created_at, execution_id LIMIT 9",
            "executions_by_function",
        ),
        (
            "SELECT * FROM inbox WHERE execution_id = '' AND shard = 1 ORDER BY execution_id, shard, message_id LIMIT 9",
            "inbox_by_execution",
        ),
    ] {
        let rows = client.query(&format!("EXPLAIN {sql}"), &[]).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains(&format!("using {index} on")), "{sql}: {plan}");
        assert!(
            !plan.contains("Sort") && !plan.contains("Filter"),
            "{sql}: {plan}"
        );
    }
}
