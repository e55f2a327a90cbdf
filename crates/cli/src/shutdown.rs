//! Shutdown signals: the first SIGTERM or Ctrl-C starts a graceful shutdown, the second exits
//! immediately.

use std::time::Duration;

use onward_embed::Engine;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long everything else may take once the drain timeout has passed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a node may take to release its shards once the drain timeout has passed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

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

    /// Exits the process with [`EXIT_INTERRUPTED`] at the next signal, or if it has not ended some
    /// time after the drain timeout. Waits on a thread of its own, so that it works however busy
    /// the other threads are, and until the process ends.
    pub(crate) fn exit_on_next_signal(self, drain_timeout: Duration) -> anyhow::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Installed before the old handlers are dropped, so that no signal is missed between.
        let mut signals = {
            let _runtime = runtime.enter();
            Self::install_handlers()?
        };
        drop(self);
        std::thread::Builder::new()
            .name("onward-signals".to_owned())
            .spawn(move || {
                let deadline = drain_timeout + SHUTDOWN_TIMEOUT;
                let second = runtime.block_on(async {
                    tokio::time::timeout(deadline, signals.next_signal()).await
                });
                if second.is_err() {
                    tracing::error!("the process did not stop in time and ends now");
                }
                std::process::exit(EXIT_INTERRUPTED.into());
            })?;
        Ok(())
    }
}

/// Stops an engine, and gives up if it does not drain in time: a guest may keep a shard busy. Its
/// leases expire then, and other nodes take over.
pub(crate) async fn stop_engine(engine: Engine, drain_timeout: Duration) -> anyhow::Result<()> {
    match tokio::time::timeout(drain_timeout + RELEASE_TIMEOUT, engine.stop()).await {
        Ok(stopped) => Ok(stopped?),
        Err(_) => {
            tracing::warn!("the node did not release its shards in time: their leases expire");
            Ok(())
        }
    }
}
