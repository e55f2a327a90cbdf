//! Pool of connections for reading: one per concurrent read, kept for the next.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onward_store::{Error, StoreClock};
use rusqlite::Connection;

use crate::connection;
use crate::latency::LatencyAverage;

pub(crate) struct SqliteReaders(Arc<SqliteReadPool>);

struct SqliteReadPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Moving average of the duration of single-row reads.
    read_latency: LatencyAverage,
    clock: Arc<dyn StoreClock>,
}

impl SqliteReaders {
    pub(crate) fn new(path: &Path, clock: Arc<dyn StoreClock>) -> Self {
        Self(Arc::new(SqliteReadPool {
            path: path.to_owned(),
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
        let pool = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            let connection = pool.checkout_connection()?;
            let answer = read(&connection);
            pool.return_connection(connection);
            answer
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
            return answer;
        }
        let pool = Arc::clone(&self.0);
        self.run_read(move |connection| pool.time_read(|| read(connection)))
            .await
    }
}

impl SqliteReadPool {
    fn checkout_connection(&self) -> Result<Connection, Error> {
        self.pop_idle()
            .map_or_else(|| connection::open_readable(&self.path), Ok)
    }

    fn pop_idle(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn return_connection(&self, connection: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }

    /// Runs `read` and updates the moving average.
    fn time_read<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = self.clock.now();
        let answer = read();
        self.read_latency.record_sample(begun, self.clock.now());
        answer
    }
}
