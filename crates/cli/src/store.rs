//! `--store URL`: which store a command works on, and how the command waits for it.

use std::sync::Arc;

use onward_store::{Policy, Store};

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
        Ok(onward_embed::store::open_existing(&self.url).await?)
    }

    /// Opens the store, creating or upgrading its tables if need be.
    pub(crate) async fn open(&self, policy: Policy) -> anyhow::Result<Arc<dyn Store>> {
        Ok(onward_embed::store::open(&self.url, policy).await?)
    }
}

/// Runs a command that waits for a store.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(command)
}
