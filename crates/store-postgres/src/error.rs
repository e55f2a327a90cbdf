//! Maps database errors to store errors. Errors are classified by their SQLSTATE, never by their
//! text.

use std::error::Error as _;
use std::fmt::Display;
use std::io;

use deadpool_postgres::{HookError, PoolError};
use onward_store::{Error, InvalidRequest, tables};
use tokio_postgres::error::{DbError, SqlState};

/// SQLSTATE raised by the schema's function `onward_require`.
const SQLSTATE_REQUIREMENT_FAILED: &str = "OW001";

/// Failure of a statement, classified by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatementFailure {
    /// A concurrent transaction was faster: nothing was stored, and reading again shows what it
    /// did.
    Race(Error),
    /// The connection is lost, or the server is shutting down.
    ConnectionLost(Error),
    /// A retry fails again.
    Permanent(Error),
}

impl StatementFailure {
    /// Returns the error without its classification, for the caller of the store.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Race(error) | Self::ConnectionLost(error) | Self::Permanent(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for StatementFailure {
    fn from(cause: tokio_postgres::Error) -> Self {
        let Some(db_error) = cause.as_db_error() else {
            // Any other error on the client side is a value that cannot be encoded or decoded.
            let text = describe_error_chain(&cause);
            return if is_connection_error(&cause) {
                Self::ConnectionLost(Error::Unavailable(text))
            } else {
                Self::Permanent(Error::Corrupt(text))
            };
        };
        let error = classify_server_error(db_error);
        match db_error.code() {
            &SqlState::UNIQUE_VIOLATION
            | &SqlState::T_R_SERIALIZATION_FAILURE
            | &SqlState::T_R_DEADLOCK_DETECTED => Self::Race(error),
            code if code.code() == SQLSTATE_REQUIREMENT_FAILED => Self::Race(error),
            code if is_server_unavailable(code) => Self::ConnectionLost(error),
            _ => Self::Permanent(error),
        }
    }
}

impl From<PoolError> for StatementFailure {
    fn from(cause: PoolError) -> Self {
        match cause {
            PoolError::Backend(cause) | PoolError::PostCreateHook(HookError::Backend(cause)) => {
                connect_failure(cause)
            }
            PoolError::Closed => Self::Permanent(Error::Closed),
            PoolError::Timeout(_) => Self::ConnectionLost(Error::Unavailable(
                "timed out waiting for a connection".to_owned(),
            )),
            other => Self::ConnectionLost(Error::Unavailable(other.to_string())),
        }
    }
}

/// Classifies the failure of a new connection. A failure that is not caused by the network is
/// caused by the connection settings.
fn connect_failure(cause: tokio_postgres::Error) -> StatementFailure {
    if cause.as_db_error().is_some() || is_connection_error(&cause) {
        return StatementFailure::from(cause);
    }
    StatementFailure::Permanent(Error::Unusable(format!(
        "cannot connect to the database of the store: {}",
        describe_error_chain(&cause)
    )))
}

/// Returns `true` if the connection is lost. An untrusted certificate is reported as a network
/// error but is not one.
fn is_connection_error(cause: &tokio_postgres::Error) -> bool {
    let Some(source) = cause
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
    else {
        return cause.is_closed();
    };
    !source
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Maps the error of a statement that stores nothing when it fails.
pub(crate) fn from_postgres_error(cause: tokio_postgres::Error) -> Error {
    StatementFailure::from(cause).into_error()
}

/// Error for a row that this program cannot have written.
pub(crate) fn unreadable_row(table: &str, cause: &dyn Display) -> Error {
    Error::Corrupt(format!("a row of {table}: {cause}"))
}

/// Joins the error with its chain of causes, which contain more detail.
pub(crate) fn describe_error_chain(cause: &tokio_postgres::Error) -> String {
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Returns `true` if the server is about to close the connection or accepts no new ones.
fn is_server_unavailable(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::DATABASE_DROPPED,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::TOO_MANY_CONNECTIONS,
        ]
        .contains(code)
}

/// Omits the error's detail field, because it quotes stored data.
fn classify_server_error(db_error: &DbError) -> Error {
    let code = db_error.code();
    let text = format!("{} (SQLSTATE {})", db_error.message(), code.code());
    match code.code() {
        "53100" => Error::DiskFull(text),
        "23514" => rejected_value(
            db_error,
            "a check constraint of the database rejects the value",
        )
        .unwrap_or(Error::Unusable(text)),
        "54000" => rejected_value(
            db_error,
            "the value is too large for an index of the database",
        )
        .unwrap_or(Error::Unusable(text)),
        "XX001" | "XX002" => Error::Corrupt(text),
        "3D000" => Error::Unusable(format!(
            "{text}. Create it first, for example with createdb"
        )),
        "42501" | "3F000" => Error::Unusable(format!(
            "{text}. The role needs the right to create and use Onward's tables"
        )),
        other if other.starts_with("28") => Error::Unusable(format!(
            "{text}. Check user and password in the URL of the store, and the server's pg_hba.conf"
        )),
        other if other.starts_with("42") || other.starts_with("0A") => Error::Unusable(format!(
            "{text}. The schema differs from the one of this program"
        )),
        _ => Error::Unavailable(text),
    }
}

/// Finds the column that a check constraint or an index refers to. Their names consist of the
/// table's name and, for most of them, the column's.
fn rejected_value(db_error: &DbError, reason: &'static str) -> Option<Error> {
    let table = tables::ALL_TABLES
        .into_iter()
        .find(|table| db_error.table() == Some(table.name))?;
    let rest = db_error
        .constraint()
        .and_then(|name| name.strip_prefix(table.name)?.strip_prefix('_'));
    let column = table
        .columns
        .iter()
        .find(|column| rest.is_some_and(|rest| rest.starts_with(column.name)));
    let column = column.unwrap_or(&table.columns[0]).name;
    Some(
        InvalidRequest::Value {
            table: table.name,
            column,
            reason,
        }
        .into(),
    )
}
