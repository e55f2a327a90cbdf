//! Runs commands to completion, with English UTF-8 output on every machine.

use std::ffi::OsStr;
use std::process::{self, Stdio};

use crate::Error;

/// A command with a clean locale and without Postgres variables of the developer.
#[derive(Debug)]
pub(crate) struct ServerCommand(process::Command);

impl ServerCommand {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = process::Command::new(program);
        command
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::null());
        // Variables that the developer has set for psql must not affect these servers.
        for name in [
            "PGDATA",
            "PGHOST",
            "PGPORT",
            "PGUSER",
            "PGDATABASE",
            "PGPASSWORD",
            "PGSERVICE",
            "PGOPTIONS",
        ] {
            command.env_remove(name);
        }
        Self(command)
    }

    pub(crate) fn with_args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    /// Runs the command and returns its standard output. Fails if its exit status is not 0.
    pub(crate) fn run_for_output(mut self) -> Result<String, Error> {
        let output = self.0.output().map_err(|source| Error::Run {
            program: self.program_name(),
            source,
        })?;
        let written = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(written);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(Error::Failed {
            program: self.program_name(),
            output: format!("{complaint}{written}").trim().to_owned(),
        })
    }

    /// Runs the command without capturing output, for a command that leaves a server running. Fails
    /// if its exit status is not 0.
    pub(crate) fn run_detached(mut self) -> Result<(), Error> {
        let status = self.0.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|source| Error::Run {
            program: self.program_name(),
            source,
        })?;
        let failed = || Error::Failed {
            program: self.program_name(),
            output: status.to_string(),
        };
        if status.success() {
            Ok(())
        } else {
            Err(failed())
        }
    }

    /// Spawns the command with a pipe to its standard input.
    pub(crate) fn spawn_piped(mut self) -> Result<process::Child, Error> {
        let quiet = self
            .0
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.spawn().map_err(|source| Error::Run {
            program: self.program_name(),
            source,
        })
    }

    /// Returns the last argument that is a path, because `runuser` is followed by the real program.
    fn program_name(&self) -> String {
        let words = std::iter::once(self.0.get_program()).chain(self.0.get_args());
        let program = words
            .take_while(|word| *word != "-D")
            .filter(|word| word.to_string_lossy().contains('/'))
            .last();
        program
            .unwrap_or_else(|| self.0.get_program())
            .to_string_lossy()
            .into_owned()
    }
}
