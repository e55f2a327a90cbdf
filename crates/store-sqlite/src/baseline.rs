//! What SQLite itself can do on this disk: one-row commits with the same durability and nothing else. Rates of the store
//! mean something beside this one only.

use std::path::Path;

use onward_store::Error;
use rusqlite::{Connection, params};

use crate::{connection, error};

/// A file with one narrow table.
pub struct SqliteBaseline(Connection);

impl SqliteBaseline {
    /// Opens a file of its own.
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

    /// How durable what it commits is, as the database says.
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

    /// Inserts one row of 100 bytes and makes it durable.
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
