//! Connections, and how durable what they write is.

use std::path::Path;
use std::time::Duration;

use onward_store::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error;

/// How long to wait for another process that writes to the same file.
const BUSY: Duration = Duration::from_secs(10);

/// Statements kept prepared: a handful for each table.
const STATEMENTS: usize = 256;

/// Bytes of the file kept in memory by the writer. Ids are random, so a large commit touches pages all over the file.
const WRITER_CACHE_KIB: i64 = 64 << 10;

/// A connection that reads and writes; the file is created if need be.
pub(crate) fn writable(path: &Path) -> Result<Connection, Error> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(error::from)?;
    if mode != "wal" {
        return Err(Error::Unusable(format!("{}: the file system cannot keep a write-ahead log", path.display())));
    }
    // FULL syncs the log at each commit: what was acknowledged survives the loss of power. The writer checkpoints by
    // itself, because it has to hear of a checkpoint that fails.
    pragma(&connection, "synchronous", "FULL")?;
    pragma(&connection, "wal_autocheckpoint", 0)?;
    pragma(&connection, "recursive_triggers", true)?;
    pragma(&connection, "cache_size", -WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn readable(path: &Path) -> Result<Connection, Error> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    pragma(&connection, "query_only", true)?;
    // Who only reads does not move the log into the file when it closes either: the writer may have reason not to.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(error::from)?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|cause| Error::Unusable(format!("{}: {cause}", path.display())))?;
    connection.busy_timeout(BUSY).map_err(error::from)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn pragma(connection: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<(), Error> {
    connection.pragma_update(None, name, value).map_err(error::from)
}
