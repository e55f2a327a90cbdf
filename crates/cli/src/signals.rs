//! What asks a process to stop: SIGTERM and Ctrl-C, once in order, twice at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) struct Signals {
    terminated: Signal,
    interrupted: Signal,
}

impl Signals {
    /// From now on none is missed.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, interrupted: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.interrupted.recv() => {}
        }
    }

    /// Ends the process at the next one.
    pub(crate) fn exit_at_next(mut self) -> JoinHandle<()> {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(EXIT_INTERRUPTED.into());
        })
    }
}
