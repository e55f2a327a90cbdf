//! Child processes that are killed on drop, so that none is left running after an error.

use std::io;
use std::process::{Child, ChildStderr, Command, ExitStatus};

/// A running child process.
#[derive(Debug)]
pub struct ChildProcess(Child);

impl ChildProcess {
    /// Starts the command.
    pub fn spawn_command(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Returns the process id.
    pub fn process_id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the standard error, if it is piped and was not taken before.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Kills the process with SIGKILL and waits until it has exited.
    pub fn kill_and_wait(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // A failure cannot be handled here.
        drop(self.kill_and_wait());
    }
}
