//! What Onward keeps from other users of the machine: the files of a store, the code that it
//! executes, and passwords in errors.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::text;
use crate::workflows::WorkflowStoreFixture;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_of_a_store_are_for_its_owner_only() {
    let fixture = WorkflowStoreFixture::sqlite();
    let store = fixture.folder.path().join("store.db");
    assert_eq!(mode(&store), 0o600);
    // An earlier version left the file open to all users; a group may have been given access.
    for (before, after) in [(0o644, 0o600), (0o640, 0o640)] {
        set_mode(&store, before);
        let read = fixture.run(&["ls"]);
        assert_eq!(read.status.code(), Some(0), "{}", text(&read.stderr));
        assert_eq!(mode(&store), before, "a command that reads changes nothing");
        let written = fixture.run(&["start", "echo", "1"]);
        assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
        assert_eq!(mode(&store), after);
    }
    // A file of another program is left unchanged.
    let other = fixture.folder.path().join("other.db");
    std::fs::write(&other, "not a store").unwrap();
    set_mode(&other, 0o644);
    let url = format!("sqlite:{}", other.display());
    let refused = fixture.run(&["start", "echo", "1", "--store", &url]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(mode(&other), 0o644);
}

#[test]
fn a_code_cache_that_others_can_write_to_is_refused() {
    let fixture = WorkflowStoreFixture::sqlite();
    let cache = fixture.folder.path().join("cache");
    let run = || {
        let mut command = fixture.command(&["start", "echo", "1", "--wait"]);
        command.env("ONWARD_CACHE", &cache).output().unwrap()
    };
    let first = run();
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(mode(&cache), 0o700);
    for writable in [0o777, 0o720] {
        set_mode(&cache, writable);
        let refused = run();
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            text(&refused.stderr).contains("chmod 700"),
            "{}",
            text(&refused.stderr)
        );
    }
}

#[test]
fn the_password_of_the_collector_is_not_printed() {
    let fixture = WorkflowStoreFixture::sqlite();
    for endpoint in [
        "http://me:s3cret@no such host:4318",
        "me:s3cret@collector:4318",
        "http://me:s3cret@[::1:4318",
    ] {
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--otlp-endpoint",
            endpoint,
        ];
        let refused = fixture.run(&args);
        assert_eq!(refused.status.code(), Some(2), "{endpoint}");
        let printed = text(&refused.stderr);
        assert!(printed.contains("OTLP exporter"), "{printed}");
        assert!(!printed.contains("s3cret"), "{printed}");
    }
}
