//! What SQLite says, in the words of the store.

use onward_store::Error;
use rusqlite::ErrorCode;

/// The error that `cause` is to a caller. Nothing of the statement's transaction is stored.
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
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

/// Whether something that was to be on disk may not be there. Trying again would only seem to help: the operating system
/// reports a failed sync once, and forgets.
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

/// Whether another connection holds a lock.
pub(crate) fn is_busy(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Whether the folder of the file lets nothing be made in it.
pub(crate) fn is_directory_read_only(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)
    )
}

/// Whether the file ends where it should not.
fn is_short_read(cause: &rusqlite::Error) -> bool {
    cause.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

/// Whether a unique key objected: an event or a row that was taken for new is there already.
pub(crate) fn is_unique_violation(cause: &rusqlite::Error) -> bool {
    matches!(
        cause.sqlite_extended_error_code(),
        Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
    )
}

/// Whether the database refuses what the caller wants written: a status that does not exist, for example, or a row that is
/// not what it was taken for.
pub(crate) fn is_rejected_write(cause: &rusqlite::Error) -> bool {
    matches!(cause, rusqlite::Error::StatementChangedRows(_))
        || cause.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}
