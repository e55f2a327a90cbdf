//! After a failed sync the store rejects every call, even if later syncs would succeed.

use std::process::Command;

use onward_store::{Error, RunEventQuery, RunStateStore as _, StoreErrorKind};
use onward_testing::{DiskFault, RunEventGenerator};

use crate::Place;

/// Environment variable with the directory of the child's store.
const FOLDER: &str = "ONWARD_POISON_FOLDER";

/// The child process: appends to a store on a disk that fails once.
#[test]
#[ignore = "started by the test below"]
fn append_on_a_failing_disk() {
    let folder = std::env::var(FOLDER).unwrap();
    let path = std::path::Path::new(&folder).join("store.db");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Ok(store) =
        onward_store_sqlite::SqliteStore::open(&path, onward_store_sqlite::Options::default())
    else {
        println!("acknowledged 0, not opened");
        return;
    };
    let events = RunEventGenerator::new("poison").next_events(30);
    let mut acknowledged = 0;
    let mut poisoned = false;
    for event in events.clone() {
        match runtime.block_on(store.append_event(event)) {
            Ok(_) => {
                assert!(!poisoned, "acknowledged after a failed sync");
                acknowledged += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Poisoned(_)), "{error}");
                assert_eq!(error.kind(), StoreErrorKind::Fatal);
                poisoned = true;
            }
        }
    }
    let read = runtime
        .block_on(store.fetch_events(&events[0].run_id, RunEventQuery::default()))
        .unwrap();
    assert!(
        read.len() >= acknowledged,
        "acknowledged events can still be read"
    );
    drop(store);
    println!("acknowledged {acknowledged}, poisoned {poisoned}");
}

#[test]
fn after_a_failed_sync_the_store_acknowledges_nothing_and_keeps_its_log() {
    let mut poisonings = 0;
    for nth in 1..=30 {
        let place = Place::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "poison::append_on_a_failing_disk",
                "--ignored",
                "--nocapture",
            ])
            .env(FOLDER, place.folder.path());
        DiskFault::Sync.inject_at(nth, &mut command);
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "sync {nth}: {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if stdout.contains("poisoned true") {
            poisonings += 1;
            assert!(
                place.folder.path().join("store.db-wal").exists(),
                "sync {nth}: the write-ahead log is missing"
            );
        }
        let acknowledged = stdout
            .split("acknowledged ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .unwrap();
        let store = place.open();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let run = RunEventGenerator::new("poison")
            .next_events(1)
            .remove(0)
            .run_id;
        let stored = runtime
            .block_on(store.fetch_events(&run, RunEventQuery::default()))
            .unwrap()
            .len();
        assert!(
            stored >= acknowledged.parse().unwrap(),
            "sync {nth}: {stored} of {acknowledged}"
        );
    }
    assert!(
        poisonings >= 15,
        "only {poisonings} syncs failed while appending"
    );
}
