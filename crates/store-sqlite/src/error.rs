//! Maps SQLite errors to store errors.

use onward_store::Error;
use rusqlite::ErrorCode;

/// Maps an SQLite error for the caller. Nothing of the statement's transaction is stored.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
pub(crate) fn from_sqlite_error(cause: rusqlite::Error) -> Error {
    let text = cause.to_string();
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Unavailable(format!("another process is writing to the file: {text}"))
        }
        Some(ErrorCode::DiskFull) => Error::DiskFull(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(text),
        Some(ErrorCode::SystemIoFailure) if is_lost_write(&cause) => Error::Poisoned(text),
        Some(ErrorCode::SystemIoFailure) if is_short_read(&cause) => Error::Corrupt(text),
        Some(ErrorCode::SystemIoFailure) => Error::Unavailable(text),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            Error::Unusable(text)
        }
        Some(ErrorCode::OutOfMemory) => Error::Unavailable(text),
        _ => Error::Corrupt(text),
    }
}

/// Returns `true` if data that should be on disk may be missing. A retry would only seem to
/// succeed: the operating system reports a failed sync only once.
fn is_lost_write(cause: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{
        SQLITE_IOERR_CLOSE, SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE,
        SQLITE_IOERR_WRITE,
    };
    let lost = [
        SQLITE_IOERR_WRITE,
        SQLITE_IOERR_FSYNC,
        SQLITE_IOERR_DIR_FSYNC,
        SQLITE_IOERR_TRUNCATE,
        SQLITE_IOERR_CLOSE,
    ];
    cause
        .sqlite_extended_error_code()
        .is_some_and(|code| lost.contains(&code))
}

/// Returns `true` if another connection holds a lock.
pub(crate) fn is_busy(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Returns `true` if SQLite could not open a file.
pub(crate) fn is_not_opened(cause: &rusqlite::Error) -> bool {
    cause.sqlite_error_code() == Some(ErrorCode::CannotOpen)
}

/// Returns `true` if no file can be created in the directory of the database.
pub(crate) fn is_directory_read_only(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)
    )
}

/// Returns `true` if the file is shorter than it should be.
fn is_short_read(cause: &rusqlite::Error) -> bool {
    cause.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

/// Returns `true` if a unique key was violated: an event or a row that was assumed to be new is
/// already stored.
pub(crate) fn is_unique_violation(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_extended_error_code(),
        Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
    )
}

/// Returns `true` if the database rejects the write itself: for example a status that does not
/// exist, or an update of a row that is not at its expected version.
pub(crate) fn is_rejected_write(cause: &rusqlite::Error) -> bool {
    matches!(cause, rusqlite::Error::StatementChangedRows(_))
        || cause.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}
