//! Pool of connections for reading: one per concurrent read, kept for the next and closed when it
//! is idle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onward_base::Timestamp;
use onward_store::{Error, StoreClock};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::connection::{self, ReadAccess};
use crate::latency::LatencyAverage;

/// Maximum number of concurrent reads on threads that may block; further ones wait. Each needs two
/// file descriptors, and a thread.
const CONCURRENT_READS_MAX: usize = 128;

/// How long a connection is kept without a read, in microseconds.
const IDLE_MICROS_MAX: i64 = 10_000_000;

pub(crate) struct SqliteReaders(Arc<SqliteReadPool>);

struct SqliteReadPool {
    path: PathBuf,
    access: ReadAccess,
    permits: Arc<Semaphore>,
    /// Connections without a read, with the time of their last one; the last used is at the back.
    idle: Mutex<VecDeque<(Timestamp, Connection)>>,
    /// Moving average of the duration of single-row reads.
    read_latency: LatencyAverage,
    clock: Arc<dyn StoreClock>,
}

impl SqliteReaders {
    pub(crate) fn new(path: &Path, access: ReadAccess, clock: Arc<dyn StoreClock>) -> Self {
        Self(Arc::new(SqliteReadPool {
            path: path.to_owned(),
            access,
            permits: Arc::new(Semaphore::new(CONCURRENT_READS_MAX)),
            idle: Mutex::default(),
            read_latency: LatencyAverage::default(),
            clock,
        }))
    }

    /// Runs `read` on a thread that may block. Each call sees everything that was committed before
    /// it.
    pub(crate) async fn run_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // Held by the thread: a caller that goes away does not end the read.
        let pool = Arc::clone(&self.0);
        let permit = Arc::clone(&pool.permits)
            .acquire_owned()
            .await
            .map_err(|_| Error::Closed)?;
        let task = tokio::task::spawn_blocking(move || {
            let connection = pool.checkout_connection()?;
            let answer = read(&connection);
            pool.return_connection(connection);
            drop(permit);
            answer.map_err(temporary_error)
        });
        task.await
            .map_err(|cause| Error::Unavailable(format!("a read did not finish: {cause}")))?
    }

    /// Runs a single-row read. While such reads are quick it runs on the caller's thread, because
    /// handing it to another thread and back would take longer.
    pub(crate) async fn run_point_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.0.read_latency.is_quick()
            && let Some(connection) = self.0.pop_idle()
        {
            let answer = self.0.time_read(|| read(&connection));
            self.0.return_connection(connection);
            return answer.map_err(temporary_error);
        }
        let pool = Arc::clone(&self.0);
        self.run_read(move |connection| pool.time_read(|| read(connection)))
            .await
    }
}

impl SqliteReadPool {
    fn checkout_connection(&self) -> Result<Connection, Error> {
        self.pop_idle().map_or_else(
            || connection::open_readable(&self.path, self.access).map_err(temporary_error),
            Ok,
        )
    }

    fn pop_idle(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_back()
            .map(|(_, connection)| connection)
    }

    /// Keeps a connection for the next read, and closes one that has been idle for long.
    fn return_connection(&self, connection: Connection) {
        let now = self.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest_is_old = idle
            .front()
            .is_some_and(|(since, _)| now.as_micros() - since.as_micros() > IDLE_MICROS_MAX);
        let closed = if oldest_is_old {
            idle.pop_front()
        } else {
            None
        };
        idle.push_back((now, connection));
        drop(idle);
        drop(closed);
    }

    /// Runs `read` and updates the moving average.
    fn time_read<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = self.clock.now();
        let answer = read();
        self.read_latency.record_sample(begun, self.clock.now());
        answer
    }
}

/// The store is open, so an error that would make it unusable while it is opened is temporary: the
/// process may be out of file descriptors.
fn temporary_error(error: Error) -> Error {
    match error {
        Error::Unusable(cause) => {
            Error::Unavailable(format!("a reader could not be opened: {cause}"))
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// A clock that the test sets.
    struct SetClock(AtomicI64);

    impl StoreClock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.load(Ordering::Relaxed)).expect("a time")
        }
    }

    #[test]
    fn connections_that_stay_idle_are_closed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("store.db");
        drop(connection::open_writable(&path).expect("a new file"));
        let clock = Arc::new(SetClock(AtomicI64::new(1)));
        let shared = Arc::clone(&clock) as Arc<dyn StoreClock>;
        let SqliteReaders(pool) = SqliteReaders::new(&path, ReadAccess::Shared, shared);
        let read_concurrently = |count: usize| {
            let connections: Vec<Connection> = (0..count)
                .map(|_| pool.checkout_connection().expect("a reader"))
                .collect();
            connections
                .into_iter()
                .for_each(|connection| pool.return_connection(connection));
            pool.idle.lock().expect("no panic").len()
        };
        assert_eq!(read_concurrently(8), 8);
        assert_eq!(read_concurrently(1), 8, "they are kept for the next reads");
        clock.0.fetch_add(IDLE_MICROS_MAX + 1, Ordering::Relaxed);
        for left in [7, 6, 5, 4, 3, 2, 1, 1] {
            assert_eq!(read_concurrently(1), left);
        }
    }
}
