//! Damaged files: a read returns correct data or fails, or `verify` reports the damage.

use std::sync::Arc;

use onward_base::{Timestamp, hex};
use onward_diagnostics::verify::{self, VerifyIssue};
use onward_runs::{AcceptedKeyForms, RunEventRecord, RunEventWrite};
use onward_store::{
    Error, RunEventQuery, RunStateStore as _, Store, StoreErrorKind, read_readable_events,
};
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
        let is_right = |it: &RunEventRecord| written.contains(it);
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

/// Changes rows of run events, which a trigger prevents.
fn edit_events(place: &Place, edit: &str) {
    let trigger: String = place
        .raw()
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'run_events_are_never_updated'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    place
        .raw()
        .execute_batch(&format!(
            "DROP TRIGGER run_events_are_never_updated; {edit}; {trigger}"
        ))
        .unwrap();
}

#[tokio::test]
async fn events_that_swapped_their_positions_are_found() {
    let place = Place::new();
    filled(&place).await;
    edit_events(
        &place,
        "UPDATE run_events SET place = (1 << 32) + 99 WHERE place = (1 << 32) + 4;
         UPDATE run_events SET place = (1 << 32) + 4 WHERE place = (1 << 32) + 5;
         UPDATE run_events SET place = (1 << 32) + 5 WHERE place = (1 << 32) + 99",
    );
    let found = findings(&*place.open()).await;
    assert_eq!(found.len(), 2, "{found:?}");
    for (finding, seq) in found.iter().zip([4, 5]) {
        assert!(
            finding.contains(&format!("event {seq}: the checksum")),
            "{finding}"
        );
    }
}

#[tokio::test]
async fn a_damaged_event_does_not_hide_the_others() {
    let place = Place::new();
    filled(&place).await;
    edit_events(
        &place,
        "UPDATE run_events SET plan_version = 'other' WHERE run_no = 1 AND run_seq IN (7, 8, 15)",
    );
    let store = place.open();
    let found = findings(&*store).await;
    assert_eq!(found.len(), 3, "{found:?}");
    let heads = store.list_run_heads(None, None, 10).await.unwrap();
    let (mut readable, mut unreadable) = (0, Vec::new());
    for head in heads {
        let mut page = RunEventQuery::default();
        loop {
            let read = read_readable_events(&*store, &head.run_id, page)
                .await
                .unwrap();
            readable += read.events.len();
            match read.unreadable {
                Some((seq, _)) => {
                    unreadable.push(seq.as_u64());
                    page.after = seq;
                }
                None if read.events.is_empty() => break,
                None => page.after = read.events.last().unwrap().run_seq,
            }
        }
    }
    assert_eq!((readable, unreadable), (57, vec![7, 8, 15]));
}

#[tokio::test]
async fn a_damaged_event_is_not_acknowledged_as_a_duplicate() {
    let place = Place::new();
    let written = filled(&place).await;
    edit_events(
        &place,
        "UPDATE run_events SET persisted_at = 0 WHERE run_seq = 3",
    );
    let store = place.open();
    for record in written.iter().filter(|it| it.run_seq.as_u64() == 3) {
        let other = RunEventGenerator::new("other").next_events(1);
        let (repeated, other) = tokio::join!(
            store.append_events(vec![record.event.clone()]),
            store.append_events(other),
        );
        let error = repeated.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
        assert!(other.is_ok(), "another commit of the group is stored");
    }
}

#[tokio::test]
async fn events_with_the_checksum_of_schema_2_stay_readable() {
    let place = Place::new();
    let written = filled(&place).await;
    let checksum = |it: &RunEventRecord| checksum_of_schema_2(&it.event, it.persisted_at);
    for record in &written {
        edit_events(
            &place,
            &format!(
                "UPDATE run_events SET checksum = {} WHERE event_id = x'{}'",
                checksum(record),
                hex::encode_hex(record.event.event_id.as_bytes()),
            ),
        );
    }
    let store = place.open();
    assert_eq!(everything(&*store).await.unwrap(), written);
    edit_events(
        &place,
        "UPDATE run_events SET plan_version = 'other' WHERE run_seq = 9",
    );
    assert_eq!(findings(&*store).await.len(), 3);
}

/// The CRC-32 that schema 1 and 2 stored: of everything but the position.
fn checksum_of_schema_2(event: &RunEventWrite, persisted_at: Timestamp) -> u32 {
    let mut bytes = Vec::new();
    let mut text = |text: Option<&str>| {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
    };
    for required in [
        &*event.run_id,
        &*event.tenant_id,
        &*event.project_id,
        &*event.environment_id,
        &*event.event_type,
        event.emitted_at.as_str(),
        &*event.plan_id,
        &*event.plan_version,
    ] {
        text(Some(required));
    }
    text(event.step_id.as_deref());
    text(event.payload.as_ref().map(|payload| payload.as_str()));
    text(event.extra.as_json());
    bytes.extend_from_slice(event.event_id.as_bytes());
    bytes.extend_from_slice(event.idempotency_key.as_bytes());
    bytes.extend_from_slice(&event.engine_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&event.logical_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&persisted_at.as_micros().to_le_bytes());
    crc32fast::hash(&bytes)
}
