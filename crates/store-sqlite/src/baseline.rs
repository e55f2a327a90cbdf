//! Baseline of SQLite's own performance on this disk: one-row commits with the same durability and
//! nothing else. The store's rates are only meaningful in comparison with this one.
//!
//! It is in this crate because only the adapters contain SQL and use the database driver. It is not
//! behind a feature: `onward bench` measures the baseline, so the binary always contains it.

use std::path::Path;

use onward_store::Error;
use rusqlite::{Connection, params};

use crate::{connection, error};

/// A file with one narrow table for baseline measurements.
pub struct SqliteBaseline(Connection);

impl SqliteBaseline {
    /// Opens a separate file, and creates the table if necessary.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let connection = connection::open_writable(path)?;
        connection
            .pragma_update(None, "wal_autocheckpoint", 1_000)
            .map_err(error::from_sqlite_error)?;
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS yardstick (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
            .map_err(error::from_sqlite_error)?;
        Ok(Self(connection))
    }

    /// Returns the database's durability settings as text.
    pub fn durability_settings(&self) -> Result<String, Error> {
        let mode: String = self
            .0
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .map_err(error::from_sqlite_error)?;
        let level: i64 = self
            .0
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .map_err(error::from_sqlite_error)?;
        let level = ["OFF", "NORMAL", "FULL", "EXTRA"]
            .into_iter()
            .nth(usize::try_from(level).unwrap_or(usize::MAX));
        Ok(format!(
            "journal_mode={mode}, synchronous={}",
            level.unwrap_or("unknown")
        ))
    }

    /// Inserts one row of 100 bytes and commits it durably.
    pub fn commit_row(&self) -> Result<(), Error> {
        let mut insert = self
            .0
            .prepare_cached("INSERT INTO yardstick (body) VALUES (?1)")
            .map_err(error::from_sqlite_error)?;
        insert
            .execute(params![[0_u8; 100].as_slice()])
            .map(drop)
            .map_err(error::from_sqlite_error)
    }
}
