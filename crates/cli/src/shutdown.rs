//! Shutdown signals: the first SIGTERM or Ctrl-C starts a graceful shutdown, the second exits
//! immediately.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// Exit code that a shell reports for a program ended by Ctrl-C (128 + SIGINT).
pub(crate) const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) struct ShutdownSignals {
    terminated: Signal,
    interrupted: Signal,
}

impl ShutdownSignals {
    /// Installs the signal handlers; no later signal is missed.
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

    /// Exits the process with [`EXIT_INTERRUPTED`] at the next signal.
    pub(crate) fn exit_on_next_signal(mut self) -> JoinHandle<()> {
        tokio::spawn(async move {
            self.next_signal().await;
            std::process::exit(EXIT_INTERRUPTED.into());
        })
    }
}
