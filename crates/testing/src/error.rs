//! Errors of the test servers in this crate.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a test server could not be started or used.
#[derive(Debug, Error)]
pub enum Error {
    /// No Postgres server binaries were found.
    #[error(
        "no Postgres server is installed: install Debian's postgresql, or put initdb and pg_ctl on the PATH"
    )]
    NotInstalled,
    /// A command could not be started.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The command that could not be started.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A command exited with an error.
    #[error("{program} failed: {output}")]
    Failed {
        /// The command that failed.
        program: String,
        /// Output or exit status of the command, and the server's log.
        output: String,
    },
    /// A data folder could not be created, prepared or read.
    #[error("cannot prepare {}: {source}", path.display())]
    Folder {
        /// The folder or file concerned.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No free port on 127.0.0.1 could be found.
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// The server is not running, or did not start in time.
    #[error("the server is not running")]
    Stopped,
}
