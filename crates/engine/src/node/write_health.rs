//! Whether the store accepts the writes of this node, from the outcomes of its heartbeats and
//! steps.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_store::{Error, StoreErrorKind};
use tokio::time::Instant;

/// How long a heartbeat may take until the store counts as not writable. While another process
/// holds the write lock of the store, a write fails only much later.
const HEARTBEAT_WRITE_MAX: Duration = Duration::from_secs(2);

/// The outcome of the last write, and the heartbeat in progress.
#[derive(Default)]
pub(crate) struct WriteHealth(Mutex<HealthState>);

#[derive(Default)]
struct HealthState {
    heartbeat_since: Option<Instant>,
    failure: Option<Error>,
}

impl WriteHealth {
    pub(super) fn begin_heartbeat(&self) {
        self.lock_state().heartbeat_since = Some(Instant::now());
    }

    pub(super) fn end_heartbeat(&self, outcome: &Result<(), Error>) {
        self.lock_state().heartbeat_since = None;
        self.record_write(outcome);
    }

    /// Records the outcome of a write. A rejected write shows that the store works.
    pub(super) fn record_write<T>(&self, outcome: &Result<T, Error>) {
        let failure = outcome.as_ref().err().filter(|error| {
            matches!(
                error.kind(),
                StoreErrorKind::Retry | StoreErrorKind::Unknown | StoreErrorKind::Fatal
            )
        });
        self.lock_state().failure = failure.cloned();
    }

    /// Fails if the last write failed, or if a heartbeat takes long.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        let state = self.lock_state();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        match state.heartbeat_since.map(|since| since.elapsed()) {
            Some(elapsed) if elapsed > HEARTBEAT_WRITE_MAX => Err(Error::Unavailable(format!(
                "a write has not completed for {} s",
                elapsed.as_secs()
            ))),
            _ => Ok(()),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, HealthState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_or_slow_write_is_reported_until_a_write_succeeds() {
        let health = WriteHealth::default();
        health.begin_heartbeat();
        assert!(health.check_writable().is_ok());
        tokio::time::advance(HEARTBEAT_WRITE_MAX * 2).await;
        assert!(health.check_writable().is_err());
        health.end_heartbeat(&Ok(()));
        assert!(health.check_writable().is_ok());
        let full = Error::DiskFull("no space".to_owned());
        health.record_write::<()>(&Err(full.clone()));
        assert_eq!(health.check_writable(), Err(full));
        health.record_write::<()>(&Err(Error::corrupt("one row")));
        assert!(health.check_writable().is_ok());
    }
}
