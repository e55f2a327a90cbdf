//! Opens stores by URL and selects the adapter for each scheme.

use std::path::Path;
use std::sync::Arc;

use onward_store::memory::MemoryStore;
use onward_store::{Store, StorePolicy, SystemClock};
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;

/// Reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The URL has none of the supported forms.
    #[error(
        "invalid store URL: expected sqlite:PATH, postgres://USER@HOST/DATABASE or memory: \
         (--store or ONWARD_STORE)"
    )]
    UnsupportedUrl,
    /// There is no store at this path.
    #[error("no store found at {0}: check the store URL (--store or ONWARD_STORE)")]
    NotFound(String),
    /// The store could not be opened, for the reason that the store error gives.
    #[error("cannot open {0}")]
    Unusable(String, #[source] onward_store::Error),
}

const POSTGRES_LABEL: &str = "the Postgres store";

/// Opens a store and creates or upgrades its tables if necessary.
pub async fn open_store(url: &str, policy: StorePolicy) -> Result<Arc<dyn Store>, StoreOpenError> {
    match parse_store_url(url)? {
        StoreUrl::Sqlite(path) => {
            let options = onward_store_sqlite::Options {
                policy,
                ..Default::default()
            };
            Ok(Arc::new(
                SqliteStore::open(path, options).map_err(|error| unusable_store(path, error))?,
            ))
        }
        StoreUrl::Postgres => {
            let options = onward_store_postgres::Options {
                policy,
                ..Default::default()
            };
            let opened = PostgresStore::open(url, options).await;
            Ok(Arc::new(opened.map_err(|error| {
                StoreOpenError::Unusable(POSTGRES_LABEL.to_owned(), error)
            })?))
        }
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(policy, Arc::new(SystemClock)))),
    }
}

/// Opens an existing store for writing and upgrades its tables if necessary. Fails with
/// [`StoreOpenError::NotFound`] if a SQLite file does not exist, and if a database contains no
/// store.
pub async fn open_existing_store_for_writing(
    url: &str,
    policy: StorePolicy,
) -> Result<Arc<dyn Store>, StoreOpenError> {
    match open_existing_store(url).await {
        Ok(_) | Err(StoreOpenError::Unusable(_, onward_store::Error::SchemaOutdated { .. })) => {
            open_store(url, policy).await
        }
        Err(error) => Err(error),
    }
}

/// Opens an existing store for reading only. Fails with [`StoreOpenError::NotFound`] if a SQLite
/// file does not exist.
pub async fn open_existing_store(url: &str) -> Result<Arc<dyn Store>, StoreOpenError> {
    match parse_store_url(url)? {
        StoreUrl::Sqlite(path) if !path.exists() => {
            Err(StoreOpenError::NotFound(path.display().to_string()))
        }
        StoreUrl::Sqlite(path) => {
            let opened = SqliteStore::open_read_only(path, onward_store_sqlite::Options::default());
            Ok(Arc::new(
                opened.map_err(|error| unusable_store(path, error))?,
            ))
        }
        StoreUrl::Postgres => {
            let opened =
                PostgresStore::open_read_only(url, onward_store_postgres::Options::default()).await;
            Ok(Arc::new(opened.map_err(|error| {
                StoreOpenError::Unusable(POSTGRES_LABEL.to_owned(), error)
            })?))
        }
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::default())),
    }
}

fn unusable_store(path: &Path, error: onward_store::Error) -> StoreOpenError {
    StoreOpenError::Unusable(path.display().to_string(), error)
}

/// The adapter that a URL selects, with its path if it has one.
enum StoreUrl<'a> {
    Sqlite(&'a Path),
    Postgres,
    Memory,
}

/// Parses the URL of a store. A URL with an empty host is a path as well:
/// `sqlite:///var/lib/onward.db`.
fn parse_store_url(url: &str) -> Result<StoreUrl<'_>, StoreOpenError> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.trim_start_matches("//").is_empty() => Ok(
            StoreUrl::Sqlite(Path::new(path.strip_prefix("//").unwrap_or(path))),
        ),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(StoreUrl::Postgres),
        Some(("memory", "")) => Ok(StoreUrl::Memory),
        _ => Err(StoreOpenError::UnsupportedUrl),
    }
}
