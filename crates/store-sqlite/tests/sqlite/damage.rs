//! Damaged files: a read returns correct data or fails, or `verify` reports the damage.

use std::sync::Arc;

use onward_diagnostics::verify::{self, VerifyIssue};
use onward_runs::{AcceptedKeyForms, RunEventRecord};
use onward_store::{Error, RunEventQuery, RunStateStore as _, Store};
use onward_store_sqlite::{Options, SqliteStore};
use onward_testing::RunEventGenerator;

use crate::Place;

/// Bytes between two flipped bits: a prime, so that every position within a page is reached.
const STRIDE: usize = 29;

/// Fills a store and closes it, so that all its data is in one file.
async fn filled(place: &Place) -> Vec<RunEventRecord> {
    let store = place.open();
    for run in ["one", "two", "three"] {
        store
            .append_events(RunEventGenerator::new(run).next_events(20))
            .await
            .unwrap();
    }
    everything(&*store).await.unwrap()
}

/// Every event of every run that the store lists.
async fn everything(store: &dyn Store) -> Result<Vec<RunEventRecord>, Error> {
    let mut all = Vec::new();
    for head in store.list_run_heads(None, None, 1_000).await? {
        all.extend(
            store
                .read_run_events(&head.run_id, RunEventQuery::default())
                .await?,
        );
    }
    Ok(all)
}

/// The findings of `verify`; a read error counts as a finding.
async fn findings(store: &dyn Store) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |it: &VerifyIssue| -> std::io::Result<()> {
        found.push(it.to_string());
        Ok(())
    };
    let stopped = verify::verify_all_runs(store, None, AcceptedKeyForms::V2Only, &mut note, |_| ())
        .await
        .err();
    found.extend(stopped.map(|stopped| stopped.to_string()));
    found
}

#[tokio::test]
async fn a_flipped_bit_is_never_returned() {
    let place = Place::new();
    let written = filled(&place).await;
    assert!(!place.path().with_extension("db-wal").exists());
    let whole = std::fs::read(place.path()).unwrap();
    let (mut refused, mut harmless, mut found_out) = (0, 0, 0);
    // Unused space is mostly zero and never read.
    let meaning = (0..whole.len()).filter(|at| whole[*at] != 0);
    for at in meaning.step_by(STRIDE) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(place.path(), &bytes).unwrap();
        let Ok(store) = SqliteStore::open_read_only(&place.path(), Options::default()) else {
            refused += 1;
            continue;
        };
        let Ok(read) = everything(&store).await else {
            refused += 1;
            continue;
        };
        // The position of an event is not part of its checksum, but `verify` checks it.
        let is_right = |it: &RunEventRecord| {
            written
                .iter()
                .any(|was| was.event == it.event && was.persisted_at == it.persisted_at)
        };
        assert!(
            read.iter().all(is_right),
            "a flipped bit in byte {at} produced an event that was never written"
        );
        if read == written {
            harmless += 1;
        } else {
            assert!(
                !findings(&store).await.is_empty(),
                "a flipped bit in byte {at} was not detected"
            );
            found_out += 1;
        }
    }
    assert!(
        refused > 50 && harmless > 100 && found_out > 0,
        "{refused} refused, {harmless} harmless, {found_out} found"
    );
}

#[tokio::test]
async fn orphaned_and_inconsistent_data_is_found() {
    for (damage, finding) in [
        (
            "DROP TRIGGER run_events_are_never_updated",
            "trigger run_events_are_never_updated is missing",
        ),
        (
            "DROP INDEX runs_to_project",
            "index runs_to_project is missing",
        ),
        (
            "DROP TRIGGER runs_take_their_events_along; DELETE FROM runs WHERE run_no = 1",
            "run number 1, which does not exist",
        ),
        (
            "DROP TRIGGER run_events_are_deleted_with_their_run; DELETE FROM run_events WHERE run_no = 1",
            "(number 1) has no events",
        ),
        (
            "INSERT INTO run_snapshots VALUES ('missing', 3, 'CURRENT', 1, NULL, '{}', 0, 1)",
            "snapshot of run missing at event 3 exists, but the run does not",
        ),
        (
            "DELETE FROM event_ids",
            "is missing from the index of event ids",
        ),
        (
            "INSERT INTO event_ids VALUES (x'00112233445566778899aabbccddeeff')",
            "is in the index of event ids, but belongs to no event",
        ),
        (
            "INSERT INTO run_events SELECT (2 << 32) + 21, event_id, event_type, emitted_at, plan_id, plan_version, 1, 1, \
             zeroblob(32), step_id, payload, extra, persisted_at, checksum FROM run_events WHERE run_no = 1 AND run_seq = 1",
            "is stored 2 times",
        ),
        (
            "UPDATE runs SET to_project = 0",
            "the reader positions of run",
        ),
        (
            "UPDATE runs SET delivered_seq = 99, to_deliver = 0",
            "the reader positions of run",
        ),
    ] {
        let place = Place::new();
        filled(&place).await;
        place.raw().execute_batch(damage).unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open_read_only(&place.path(), Options::default()).unwrap());
        let found = findings(&*store).await;
        assert!(
            found.iter().any(|it| it.contains(finding)),
            "{damage}: {found:?}"
        );
    }
}

#[tokio::test]
async fn a_replaced_event_is_reported_as_corrupt() {
    let place = Place::new();
    let written = filled(&place).await;
    place
        .raw()
        .execute_batch(
            "INSERT OR REPLACE INTO run_events SELECT place, event_id, 'StepFailed', emitted_at, plan_id, plan_version, \
             engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at, checksum \
             FROM run_events WHERE run_no = 1 AND run_seq = 3",
        )
        .unwrap();
    let store = place.open();
    let run = &written[0].event.run_id;
    let runs = store.list_run_heads(None, None, 10).await.unwrap();
    assert!(runs.iter().any(|head| head.run_id == *run));
    let mut errors = Vec::new();
    for head in runs {
        errors.extend(
            store
                .fetch_events(&head.run_id, RunEventQuery::default())
                .await
                .err()
                .map(|error| error.to_string()),
        );
    }
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("event 3 of run"), "{errors:?}");
}
