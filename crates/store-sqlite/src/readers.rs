//! Connections for reading: one a concurrent read, kept for the next.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onward_store::{Clock, Error};
use rusqlite::Connection;

use crate::open;
use crate::pace::Pace;

pub(crate) struct Readers(Arc<Pool>);

struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Of reading a row.
    pace: Pace,
    clock: Arc<dyn Clock>,
}

impl Readers {
    pub(crate) fn new(path: &Path, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Pool { path: path.to_owned(), idle: Mutex::default(), pace: Pace::default(), clock }))
    }

    /// Runs `read` where it may block. Each call sees everything that was committed before it.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let pool = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            let connection = pool.take()?;
            let answer = read(&connection);
            pool.give_back(connection);
            answer
        });
        task.await.map_err(|cause| Error::Unavailable(format!("a read did not finish: {cause}")))?
    }

    /// The same for a single row: as long as those come quickly, handing the read to a thread and back would take longer.
    pub(crate) async fn read_one<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.0.pace.is_quick()
            && let Some(connection) = self.0.idle()
        {
            let answer = self.0.timed(|| read(&connection));
            self.0.give_back(connection);
            return answer;
        }
        let pool = Arc::clone(&self.0);
        self.read(move |connection| pool.timed(|| read(connection))).await
    }
}

impl Pool {
    fn take(&self) -> Result<Connection, Error> {
        self.idle().map_or_else(|| open::readable(&self.path), Ok)
    }

    fn idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// Keeps the pace up to date.
    fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = self.clock.now();
        let answer = read();
        self.pace.note(begun, self.clock.now());
        answer
    }
}
