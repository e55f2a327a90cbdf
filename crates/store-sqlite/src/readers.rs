//! Connections for reading: one a concurrent read, kept for the next.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onward_store::Error;
use rusqlite::Connection;

use crate::open;

pub(crate) struct Readers(Arc<Pool>);

struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Arc::new(Pool { path: path.to_owned(), idle: Mutex::default() }))
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
}

impl Pool {
    fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open::readable(&self.path), Ok)
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}
