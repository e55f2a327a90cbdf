//! Cleans up a cluster when the tests cannot: a process that waits for them to end.
//!
//! A test that is killed runs no destructors, and its server would run forever. Every cluster
//! therefore has a shell process that reads from a pipe which only the test process holds open.
//! When the test process ends for any reason, the pipe is closed; the shell then stops the server
//! and removes its folder. A process counts as the server only if its working directory is the
//! cluster's data folder: the process id in the file may have been left by a server that was
//! killed, and belong to another process by now.

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

/// The waiting shell process. Dropping this triggers the cleanup and waits for it.
#[derive(Debug)]
pub(crate) struct ClusterReaper(Child);

impl ClusterReaper {
    /// Spawns the process for the cluster in `folder`.
    pub(crate) fn watch_cluster(folder: &Path) -> Result<Self, Error> {
        let shell = ServerCommand::new("/bin/sh")
            .with_args(["-c", CLEANUP_SCRIPT, "clear-up"])
            .with_args([folder]);
        shell.spawn_piped().map(Self)
    }
}

impl Drop for ClusterReaper {
    fn drop(&mut self) {
        // Waiting closes the pipe first. A failure cannot be handled here.
        let _ = self.0.wait();
    }
}
