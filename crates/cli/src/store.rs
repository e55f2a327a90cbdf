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
        match self.sqlite_path() {
            Some(path) if !path.exists() => bail!("there is no store at {}", path.display()),
            Some(path) => {
                let opened = Sqlite::open_existing(path, onward_store_sqlite::Options::default());
                Ok(Arc::new(opened.with_context(|| cannot_open(path))?))
            }
            None => self.open(Policy::default()).await,
        }
    }

    /// Opens the store, creating or upgrading its tables if need be.
    pub(crate) async fn open(&self, policy: Policy) -> anyhow::Result<Arc<dyn Store>> {
        if let Some(path) = self.sqlite_path() {
            let options = onward_store_sqlite::Options { policy, ..Default::default() };
            return Ok(Arc::new(Sqlite::open(path, options).with_context(|| cannot_open(path))?));
        }
        match self.url.split_once(':') {
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => self.postgres(policy).await,
            Some(("memory", "")) => Ok(Arc::new(Memory::new(policy, Arc::new(SystemClock)))),
            _ => bail!("this is not a store: expected sqlite:PATH, postgres://USER@HOST/DATABASE or memory:"),
        }
    }

    /// Accepts the form with an empty host as well: `sqlite:///var/lib/onward.db`.
    fn sqlite_path(&self) -> Option<&Path> {
        let path = self.url.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        (!path.is_empty()).then(|| Path::new(path))
    }

    async fn postgres(&self, policy: Policy) -> anyhow::Result<Arc<dyn Store>> {
        let options = onward_store_postgres::Options { policy, ..Default::default() };
        Ok(Arc::new(Postgres::open(&self.url, options).await.context("cannot open the Postgres store")?))
    }
}

fn cannot_open(path: &Path) -> String {
    format!("cannot open {}", path.display())
}

/// Runs a command that waits for a store.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(command)
}
