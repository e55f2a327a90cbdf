//! The SQLite adapter: tests of behaviour that only this adapter has.

#![expect(clippy::unwrap_used, reason = "a failed test reports its location")]

mod append_only;
mod campaign_keys;
mod conformance;
mod contract;
mod damage;
mod foreign;
mod groups;
mod journals;
mod migrations;
mod poison;
mod power_cuts;
mod schema;
mod scope_columns;
mod statements;

use std::path::PathBuf;
use std::sync::Arc;

use onward_store::{Error, Store};
use onward_store_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

/// A folder with a store in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn try_open(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(SqliteStore::open(
            &self.path(),
            Options::default(),
        )?))
    }

    fn open(&self) -> Arc<dyn Store> {
        self.try_open().unwrap()
    }

    /// A direct connection to the file.
    fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}
