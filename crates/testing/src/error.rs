//! Why there is no server to test with.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a throw-away server cannot be had.
#[derive(Debug, Error)]
pub enum Error {
    /// No server binaries were found.
    #[error(
        "no Postgres server is installed: install Debian's postgresql, or put initdb and pg_ctl on the PATH"
    )]
    NotInstalled,
    /// A command could not be run at all.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The command.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A command said no.
    #[error("{program} failed: {output}")]
    Failed {
        /// The command.
        program: String,
        /// What it said, and what the server's log says.
        output: String,
    },
    /// The folder for the data could not be prepared.
    #[error("cannot prepare {}: {source}", path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No port could be had.
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// The server is not running.
    #[error("the server is not running")]
    Stopped,
}
