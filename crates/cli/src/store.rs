//! `--store URL`: which store a command works on, and how the command waits for it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use onward_store::memory::Memory;
use onward_store::{Policy, Store, SystemClock};
use onward_store_postgres::Postgres;
use onward_store_sqlite::Sqlite;

/// Which store to work on.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or memory:
    #[arg(long = "store", value_name = "URL", env = "ONWARD_STORE", hide_env_values = true)]
    url: String,
}

impl StoreArgs {
    /// Opens a store that is there, to read from it only.
    pub(crate) async fn open_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        match self.place()? {
            Place::Sqlite(path) if !path.exists() => bail!("there is no store at {}", path.display()),
            Place::Sqlite(path) => {
                let opened = Sqlite::open_existing(path, onward_store_sqlite::Options::default());
                Ok(Arc::new(opened.with_context(|| cannot_open(path))?))
            }
            Place::Postgres => {
                let opened = Postgres::open_existing(&self.url, onward_store_postgres::Options::default()).await;
                Ok(Arc::new(opened.context(POSTGRES)?))
            }
            Place::Memory => Ok(Arc::new(Memory::default())),
        }
    }

    /// Opens the store, creating or upgrading its tables if need be.
    pub(crate) async fn open(&self, policy: Policy) -> anyhow::Result<Arc<dyn Store>> {
        match self.place()? {
            Place::Sqlite(path) => {
                let options = onward_store_sqlite::Options { policy, ..Default::default() };
                Ok(Arc::new(Sqlite::open(path, options).with_context(|| cannot_open(path))?))
            }
            Place::Postgres => {
                let options = onward_store_postgres::Options { policy, ..Default::default() };
                Ok(Arc::new(Postgres::open(&self.url, options).await.context(POSTGRES)?))
            }
            Place::Memory => Ok(Arc::new(Memory::new(policy, Arc::new(SystemClock)))),
        }
    }

    /// The form with an empty host is a path as well: `sqlite:///var/lib/onward.db`.
    fn place(&self) -> anyhow::Result<Place<'_>> {
        match self.url.split_once(':') {
            Some(("sqlite", path)) if !path.trim_start_matches("//").is_empty() => {
                Ok(Place::Sqlite(Path::new(path.strip_prefix("//").unwrap_or(path))))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Place::Postgres),
            Some(("memory", "")) => Ok(Place::Memory),
            _ => bail!("this is not a store: expected sqlite:PATH, postgres://USER@HOST/DATABASE or memory:"),
        }
    }
}

/// Where a URL leads.
enum Place<'a> {
    Sqlite(&'a Path),
    Postgres,
    Memory,
}

const POSTGRES: &str = "cannot open the Postgres store";

fn cannot_open(path: &Path) -> String {
    format!("cannot open {}", path.display())
}

/// Runs a command that waits for a store.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(command)
}
