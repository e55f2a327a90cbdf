//! What asks a process to stop: SIGTERM and Ctrl-C, once in order, twice at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) struct ShutdownSignals {
    terminated: Signal,
    interrupted: Signal,
}

impl ShutdownSignals {
    /// From now on none is missed.
    pub(crate) fn install_handlers() -> anyhow::Result<Self> {
        Ok(Self {
            terminated: signal(SignalKind::terminate())?,
            interrupted: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next_signal(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.interrupted.recv() => {}
        }
    }

    /// Ends the process at the next one.
    pub(crate) fn exit_on_next_signal(mut self) -> JoinHandle<()> {
        tokio::spawn(async move {
            self.next_signal().await;
            std::process::exit(EXIT_INTERRUPTED.into());
        })
    }
}
