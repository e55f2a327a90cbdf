//! After a failed sync the store refuses to go on, however well the next syncs would do.

use std::process::Command;

use onward_store::{Error, RunEventQuery, RunStateStore as _, StoreErrorKind};
use onward_testing::{DiskFault, RunEventGenerator};

use crate::Place;

/// Where the child finds its store.
const FOLDER: &str = "ONWARD_POISON_FOLDER";

/// Runs in a process of its own, on a disk that fails once.
#[test]
#[ignore = "a part of the test below, which starts it"]
fn child() {
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
        "what was acknowledged can still be read"
    );
    drop(store);
    println!("acknowledged {acknowledged}, poisoned {poisoned}");
}

#[test]
fn a_store_that_failed_to_sync_acknowledges_nothing_any_more_and_leaves_its_log_alone() {
    let mut poisonings = 0;
    for nth in 1..=30 {
        let place = Place::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "poison::child", "--ignored", "--nocapture"])
            .env(FOLDER, place.folder.path());
        DiskFault::Sync.inject_at(nth, &mut command);
        let output = command.output().unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "sync {nth}: {words}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if words.contains("poisoned true") {
            poisonings += 1;
            assert!(
                place.folder.path().join("store.db-wal").exists(),
                "sync {nth}: the log is gone"
            );
        }
        let acknowledged = words
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
