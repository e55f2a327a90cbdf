//! Connections, and how durable what they write is.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_store::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::{error, migrate};

/// How long to wait for another process that writes to the same file.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to try to turn a new file over while others do the same.
const WAL_ATTEMPTS_MAX: u32 = 1_000;

/// Statements kept prepared: a handful for each table.
const STATEMENT_CACHE_CAPACITY: usize = 256;

/// Bytes of the file kept in memory by the writer. Ids are random, so a large commit touches pages all over the file.
const WRITER_CACHE_KIB: i64 = 64 << 10;

/// A connection that reads and writes; the file is created if need be. One that belongs to another program is left as it is.
pub(crate) fn open_writable(path: &Path) -> Result<Connection, Error> {
    let connection = open_connection(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )?;
    // Where it may not write, SQLite opens to read and says nothing until something is written.
    if connection
        .is_readonly("main")
        .map_err(error::from_sqlite_error)?
    {
        return Err(Error::Unusable("the file cannot be written to".to_owned()));
    }
    migrate::reject_foreign_database(&connection)?;
    if enable_wal(&connection)? != "wal" {
        return Err(Error::Unusable(
            "the file system cannot keep a write-ahead log".to_owned(),
        ));
    }
    // FULL syncs the log at each commit: what was acknowledged survives the loss of power. The writer checkpoints by
    // itself, because it has to hear of a checkpoint that fails.
    set_pragma(&connection, "synchronous", "FULL")?;
    set_pragma(&connection, "wal_autocheckpoint", 0)?;
    set_pragma(&connection, "recursive_triggers", true)?;
    set_pragma(&connection, "cache_size", -WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// Several that open a new file at once get in each other's way here, and SQLite does not wait as it does elsewhere.
fn enable_wal(connection: &Connection) -> Result<String, Error> {
    let mut tries = 0;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(cause) if error::is_busy(&cause) && tries < WAL_ATTEMPTS_MAX => {
                tries += 1;
                // This waits for whoever is writing.
                connection
                    .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
                    .map_err(error::from_sqlite_error)?;
            }
            outcome => return outcome.map_err(error::from_sqlite_error),
        }
    }
}

/// A connection that only reads, and never creates.
pub(crate) fn open_readable(path: &Path) -> Result<Connection, Error> {
    let mut connection = open_connection(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Readers of a log need a file beside it to agree in. Where none can be made, nobody writes either; and where there is no
    // log, the file alone is the whole.
    let probe = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    if probe.is_err_and(|cause| error::is_directory_read_only(&cause)) && !has_wal(path) {
        connection = open_connection(
            &immutable_uri(path),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        )?;
    }
    set_pragma(&connection, "query_only", true)?;
    // Who only reads does not move the log into the file when it closes either: the writer may have reason not to.
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

/// The file by a name that promises SQLite that nobody changes it.
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
    // Plans do not depend on the values that are bound: else binding a bound of a range makes the statement be prepared anew.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(error::from_sqlite_error)?;
    Ok(connection)
}

/// SQLite takes names that begin with `file:` for something else than names.
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
            Error::Unusable(format!("there is no folder {}", folder.display()))
        }
        _ if path.is_dir() => Error::Unusable("it is a folder".to_owned()),
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
