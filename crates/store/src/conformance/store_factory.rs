//! What an adapter provides so that the suite can run on it.

use std::sync::Arc;

use async_trait::async_trait;
use onward_journal::ExecutionId;
use onward_runs::{RunId, RunSeq};

use crate::{Error, ManualClock, Store, StorePolicy};

/// A kind of store, able to make empty ones.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// What it is called in reports.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// An empty store with this policy, stamping by this clock. It lives as long as the returned handle, and several
    /// live at a time without knowing of each other.
    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error>;
}

/// A store that is open.
#[async_trait]
pub trait OpenedStore: Send + Sync {
    /// The store.
    fn store(&self) -> &(dyn Store + 'static);

    /// A second, independent handle on the same data, as another process would have; `None` if there cannot be one.
    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error>;

    /// Tries to change what is stored behind the store's back, with the rights that the store itself has. Tells whether
    /// the database let it happen.
    async fn try_tamper(&self, tampering: &TamperAttempt) -> Result<bool, Error>;
}

/// A change that an append-only log must not allow, not even by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TamperAttempt {
    /// Change a stored run event.
    UpdateEvent {
        /// The run.
        run: RunId,
        /// Its place.
        seq: RunSeq,
    },
    /// Delete one run event.
    DeleteEvent {
        /// The run.
        run: RunId,
        /// Its place.
        seq: RunSeq,
    },
    /// Change a chunk of a journal.
    UpdateJournal {
        /// The execution.
        execution: ExecutionId,
    },
    /// Delete a chunk of a journal.
    DeleteJournal {
        /// The execution.
        execution: ExecutionId,
    },
    /// Empty the table of run events at once.
    EmptyEvents,
}
