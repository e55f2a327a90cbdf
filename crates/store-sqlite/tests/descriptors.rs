//! A store in a process that is out of file descriptors. The limit applies to a whole process, so
//! this is the only test of its program.

#![expect(
    clippy::unwrap_used,
    reason = "a failing step of a test panics where it fails"
)]

use std::fs::File;

use onward_store::tables::ExecutionRow;
use onward_store::{RecordReader as _, StoreErrorKind, TableScan};
use onward_store_sqlite::{Options, SqliteStore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn set_fd_limit(current: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(current);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[tokio::test]
async fn a_read_without_descriptors_is_unavailable_and_works_again_later() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db"), Options::default()).unwrap();
    let read = async || {
        store
            .list_records::<ExecutionRow>(TableScan::all_rows::<ExecutionRow>())
            .await
    };
    set_fd_limit(100);
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // With room for none, some or all of the files of a reader.
    for free in 0..4 {
        match read().await {
            Ok(rows) => assert!(free > 0 && rows.is_empty(), "a reader needs a file"),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Retry, "{free} free: {error}"),
        }
        taken.pop();
    }
    drop(taken);
    assert_eq!(read().await.unwrap(), []);
}
