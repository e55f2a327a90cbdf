//! Stores by URL: which adapter it is, and how it is opened.

use std::path::Path;
use std::sync::Arc;

use onward_store::memory::Memory;
use onward_store::{Policy, Store, SystemClock};
use onward_store_postgres::Postgres;
use onward_store_sqlite::Sqlite;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names none.
    #[error("this is not a store: expected sqlite:PATH, postgres://USER@HOST/DATABASE or memory:")]
    NotAStore,
    /// There is nothing to read.
    #[error("there is no store at {0}")]
    Absent(String),
    /// It is there, and cannot be used.
    #[error("cannot open {0}")]
    Unusable(String, #[source] onward_store::Error),
}

const POSTGRES: &str = "the Postgres store";

/// Opens a store, creating or upgrading its tables if need be.
pub async fn open(url: &str, policy: Policy) -> Result<Arc<dyn Store>, OpenError> {
    match place(url)? {
        Place::Sqlite(path) => {
            let options = onward_store_sqlite::Options { policy, ..Default::default() };
            Ok(Arc::new(Sqlite::open(path, options).map_err(|error| unusable(path, error))?))
        }
        Place::Postgres => {
            let options = onward_store_postgres::Options { policy, ..Default::default() };
            let opened = Postgres::open(url, options).await;
            Ok(Arc::new(opened.map_err(|error| OpenError::Unusable(POSTGRES.to_owned(), error))?))
        }
        Place::Memory => Ok(Arc::new(Memory::new(policy, Arc::new(SystemClock)))),
    }
}

/// Opens a store that is there, to read from it only.
pub async fn open_existing(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    match place(url)? {
        Place::Sqlite(path) if !path.exists() => Err(OpenError::Absent(path.display().to_string())),
        Place::Sqlite(path) => {
            let opened = Sqlite::open_existing(path, onward_store_sqlite::Options::default());
            Ok(Arc::new(opened.map_err(|error| unusable(path, error))?))
        }
        Place::Postgres => {
            let opened = Postgres::open_existing(url, onward_store_postgres::Options::default()).await;
            Ok(Arc::new(opened.map_err(|error| OpenError::Unusable(POSTGRES.to_owned(), error))?))
        }
        Place::Memory => Ok(Arc::new(Memory::default())),
    }
}

fn unusable(path: &Path, error: onward_store::Error) -> OpenError {
    OpenError::Unusable(path.display().to_string(), error)
}

/// Where a URL leads.
enum Place<'a> {
    Sqlite(&'a Path),
    Postgres,
    Memory,
}

/// The form with an empty host is a path as well: `sqlite:///var/lib/onward.db`.
fn place(url: &str) -> Result<Place<'_>, OpenError> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.trim_start_matches("//").is_empty() => {
            Ok(Place::Sqlite(Path::new(path.strip_prefix("//").unwrap_or(path))))
        }
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Place::Postgres),
        Some(("memory", "")) => Ok(Place::Memory),
        _ => Err(OpenError::NotAStore),
    }
}
