//! What the database says is wrong, in the words of the store. Errors are told apart by their SQLSTATE, never by their
//! text.

use std::error::Error as _;
use std::fmt::Display;
use std::io;

use deadpool_postgres::{HookError, PoolError};
use onward_store::{Error, Invalid, tables};
use tokio_postgres::error::{DbError, SqlState};

/// Raised by `onward_require` of the schema.
const NOT_AS_EXPECTED: &str = "OW001";

/// What to do about a statement that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Another transaction was faster: nothing was stored, and looking again will show what it did.
    Race(Error),
    /// The connection is gone, or the server is on its way down.
    Lost(Error),
    /// It will fail again.
    Refused(Error),
}

impl Trouble {
    /// The error, for whoever has to live with it.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Race(error) | Self::Lost(error) | Self::Refused(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(cause: tokio_postgres::Error) -> Self {
        let Some(said) = cause.as_db_error() else {
            // What else can go wrong on our side of the connection is a value that cannot be written or read.
            let text = described(&cause);
            return if is_network(&cause) {
                Self::Lost(Error::Unavailable(text))
            } else {
                Self::Refused(Error::Corrupt(text))
            };
        };
        let error = said_by_server(said);
        match said.code() {
            &SqlState::UNIQUE_VIOLATION | &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => {
                Self::Race(error)
            }
            code if code.code() == NOT_AS_EXPECTED => Self::Race(error),
            code if is_farewell(code) => Self::Lost(error),
            _ => Self::Refused(error),
        }
    }
}

impl From<PoolError> for Trouble {
    fn from(cause: PoolError) -> Self {
        match cause {
            PoolError::Backend(cause) | PoolError::PostCreateHook(HookError::Backend(cause)) => connecting(cause),
            PoolError::Closed => Self::Refused(Error::Closed),
            PoolError::Timeout(_) => Self::Lost(Error::Unavailable("no connection could be had in time".to_owned())),
            other => Self::Lost(Error::Unavailable(other.to_string())),
        }
    }
}

/// Why there is no new connection. What is not the network is the way we are told to connect.
fn connecting(cause: tokio_postgres::Error) -> Trouble {
    if cause.as_db_error().is_some() || is_network(&cause) {
        return Trouble::from(cause);
    }
    Trouble::Refused(Error::Unusable(format!("cannot connect to the database of the store: {}", described(&cause))))
}

/// Whether the connection is gone. A certificate that is not trusted comes as an error of the network, and is none.
fn is_network(cause: &tokio_postgres::Error) -> bool {
    let Some(source) = cause.source().and_then(|source| source.downcast_ref::<io::Error>()) else {
        return cause.is_closed();
    };
    !source.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The error for a caller, of a statement that stores nothing when it fails.
pub(crate) fn from(cause: tokio_postgres::Error) -> Error {
    Trouble::from(cause).into_error()
}

/// What was read cannot have been written.
pub(crate) fn unreadable(table: &str, cause: &dyn Display) -> Error {
    Error::Corrupt(format!("a row of {table}: {cause}"))
}

/// The cause and its own causes, which say more.
pub(crate) fn described(cause: &tokio_postgres::Error) -> String {
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

/// Whether the server is about to close the connection, or does not take new ones.
fn is_farewell(code: &SqlState) -> bool {
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

/// Without the detail, which quotes what is stored.
fn said_by_server(said: &DbError) -> Error {
    let code = said.code();
    let text = format!("{} (SQLSTATE {})", said.message(), code.code());
    match code.code() {
        "53100" => Error::Full(text),
        "23514" => refused_value(said, "the database does not take this value").unwrap_or(Error::Unusable(text)),
        "54000" => refused_value(said, "an index of the database cannot hold so much").unwrap_or(Error::Unusable(text)),
        "XX001" | "XX002" => Error::Corrupt(text),
        "3D000" => Error::Unusable(format!("{text}. Create it first, for example with createdb")),
        "42501" | "3F000" => {
            Error::Unusable(format!("{text}. The role needs the right to create and use Onward's tables"))
        }
        other if other.starts_with("28") => Error::Unusable(format!(
            "{text}. Check user and password in the URL of the store, and the server's pg_hba.conf"
        )),
        other if other.starts_with("42") || other.starts_with("0A") => {
            Error::Unusable(format!("{text}. The schema is not the one this program made"))
        }
        _ => Error::Unavailable(text),
    }
}

/// The column that a check or an index is about. They are named after their table and, most of them, the column.
fn refused_value(said: &DbError, reason: &'static str) -> Option<Error> {
    let table = tables::ALL.into_iter().find(|table| said.table() == Some(table.name))?;
    let rest = said.constraint().and_then(|name| name.strip_prefix(table.name)?.strip_prefix('_'));
    let column = table.columns.iter().find(|column| rest.is_some_and(|rest| rest.starts_with(column.name)));
    let column = column.unwrap_or(&table.columns[0]).name;
    Some(Invalid::Value { table: table.name, column, reason }.into())
}
