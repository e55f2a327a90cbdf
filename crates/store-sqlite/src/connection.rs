//! Opens connections and sets their durability.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_store::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::{error, migrate};

/// Timeout for waiting on another process that writes to the same file.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of attempts to switch a new file to WAL mode while other connections do the same.
const WAL_ATTEMPTS_MAX: u32 = 1_000;

/// Number of prepared statements kept per connection: a few for each table.
const STATEMENT_CACHE_CAPACITY: usize = 256;

/// Size of the writer's page cache in KiB. Ids are random, so a large commit touches pages all over
/// the file.
const WRITER_CACHE_KIB: i64 = 64 << 10;

/// Opens a connection that reads and writes; creates the file if necessary. A file of another
/// program is left unchanged.
pub(crate) fn open_writable(path: &Path) -> Result<Connection, Error> {
    let connection = open_connection(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )?;
    // SQLite opens a file without write permission read-only and reports this only at the first
    // write.
    if connection
        .is_readonly("main")
        .map_err(error::from_sqlite_error)?
    {
        return Err(Error::Unusable("the file is read-only".to_owned()));
    }
    migrate::reject_foreign_database(&connection)?;
    if enable_wal(&connection)? != "wal" {
        return Err(Error::Unusable(
            "the file system does not support a write-ahead log".to_owned(),
        ));
    }
    // FULL syncs the log at each commit: acknowledged commits survive a power failure. The writer
    // runs checkpoints itself, because it must detect a checkpoint that fails.
    set_pragma(&connection, "synchronous", "FULL")?;
    set_pragma(&connection, "wal_autocheckpoint", 0)?;
    set_pragma(&connection, "recursive_triggers", true)?;
    set_pragma(&connection, "cache_size", -WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// Switches the file to WAL mode. Connections that open a new file at the same time conflict here,
/// and SQLite's busy timeout does not apply.
fn enable_wal(connection: &Connection) -> Result<String, Error> {
    let mut tries = 0;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(cause) if error::is_busy(&cause) && tries < WAL_ATTEMPTS_MAX => {
                tries += 1;
                // This waits for the current writer.
                connection
                    .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
                    .map_err(error::from_sqlite_error)?;
            }
            outcome => return outcome.map_err(error::from_sqlite_error),
        }
    }
}

/// Whether a reader may assume that no process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAccess {
    /// This process writes.
    Shared,
    /// The store was opened for reading only. If the directory is read-only as well, no process can
    /// write.
    ReadOnlyStore,
}

/// Opens a connection that only reads, and never creates the file.
pub(crate) fn open_readable(path: &Path, access: ReadAccess) -> Result<Connection, Error> {
    let mut connection = open_connection(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Readers of a write-ahead log need a shared-memory file beside it. If the directory is
    // read-only, no process can write either; and without a log the file alone is complete. The
    // same error means that the process is out of file descriptors.
    let probe = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    if let Err(cause) = probe
        && error::is_directory_read_only(&cause)
    {
        if access == ReadAccess::Shared || has_wal(path) {
            return Err(error::from_sqlite_error(cause));
        }
        connection = open_connection(
            &immutable_uri(path),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        )?;
    }
    set_pragma(&connection, "query_only", true)?;
    // A reader does not checkpoint the log when it closes, because the writer may have a reason not
    // to.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(error::from_sqlite_error)?;
    Ok(connection)
}

fn has_wal(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Returns a URI that guarantees to SQLite that the file does not change.
fn immutable_uri(path: &Path) -> PathBuf {
    let path = path
        .to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{path}?immutable=1").into()
}

fn open_connection(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let name = if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        path.into()
    } else {
        escape_file_uri(path)
    };
    let connection =
        Connection::open_with_flags(name, flags).map_err(|cause| open_error(path, &cause))?;
    connection
        .busy_timeout(BUSY_TIMEOUT)
        .map_err(error::from_sqlite_error)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    // Plans do not depend on bound values: otherwise SQLite prepares a statement again when the
    // bound of a range is bound.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(error::from_sqlite_error)?;
    Ok(connection)
}

/// SQLite interprets names that begin with `file:` as URIs.
fn escape_file_uri(path: &Path) -> Cow<'_, Path> {
    if path.to_string_lossy().starts_with("file:") {
        Path::new(".").join(path).into()
    } else {
        path.into()
    }
}

fn open_error(path: &Path, cause: &rusqlite::Error) -> Error {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Error::Unusable(format!("the directory {} does not exist", folder.display()))
        }
        _ if path.is_dir() => Error::Unusable("the path is a directory".to_owned()),
        _ => Error::Unusable(cause.to_string()),
    }
}

fn set_pragma(
    connection: &Connection,
    name: &str,
    value: impl rusqlite::ToSql,
) -> Result<(), Error> {
    connection
        .pragma_update(None, name, value)
        .map_err(error::from_sqlite_error)
}
