//! Who clears up when the tests cannot: a process that waits for them to end.
//!
//! A test that is killed runs no destructors, and its server would run for ever. So every cluster has a shell that
//! reads from a pipe which only the tests hold open. When they end, in whatever way, the pipe does; then it stops the
//! server and removes its folder. A process counts as the server only if it works in the cluster's folder: the number
//! in the file may have been left by a server that was killed, and belong to another process by now.

use std::path::Path;
use std::process::Child;

use crate::Error;
use crate::command::ServerCommand;

const CLEANUP_SCRIPT: &str = r#"
    trap '' INT TERM HUP
    read -r _
    pid=$(head -n 1 "$1/data/postmaster.pid")
    is_serving() { [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; }
    if is_serving "$1"; then
        kill -QUIT "$pid"
        while is_serving "$1"; do sleep 0.02; done
    fi
    rm -rf "$1"
"#;

/// The process that waits. Dropping this lets it do its work, and waits for that.
#[derive(Debug)]
pub(crate) struct ClusterReaper(Child);

impl ClusterReaper {
    /// Watches over the cluster in `folder`.
    pub(crate) fn watch_cluster(folder: &Path) -> Result<Self, Error> {
        let shell = ServerCommand::new("/bin/sh")
            .with_args(["-c", CLEANUP_SCRIPT, "clear-up"])
            .with_args([folder]);
        shell.spawn_piped().map(Self)
    }
}

impl Drop for ClusterReaper {
    fn drop(&mut self) {
        // Waiting closes the pipe first. Nothing more can be done about a failure here.
        let _ = self.0.wait();
    }
}
