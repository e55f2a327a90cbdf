//! The interface that an adapter implements so that the suite can run against it.

use std::sync::Arc;

use async_trait::async_trait;
use onward_journal::ExecutionId;
use onward_runs::{RunId, RunSeq};

use crate::{Error, ManualClock, Store, StorePolicy};

/// A store implementation under test, which opens empty stores.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// Returns the name of the implementation in reports.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Opens an empty store with this policy and this clock. The store lives as long as the
    /// returned handle, and several stores can be open at a time without affecting each other.
    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error>;
}

/// An open store, with the additional access that the suite needs.
#[async_trait]
pub trait OpenedStore: Send + Sync {
    /// Returns the open store.
    fn store(&self) -> &(dyn Store + 'static);

    /// Opens a second, independent handle on the same data, as another process would have. Returns
    /// `None` if the implementation does not support one.
    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error>;

    /// Tries to change stored data by bypassing the store, with the database privileges of the
    /// store itself. Returns whether the database allowed it.
    async fn try_tamper(&self, tampering: &TamperAttempt) -> Result<bool, Error>;
}

/// A change that an append-only log must reject, even if it is made directly in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TamperAttempt {
    /// Updates a stored run event.
    UpdateEvent {
        /// The run that the event belongs to.
        run: RunId,
        /// Sequence number of the event.
        seq: RunSeq,
    },
    /// Deletes one run event.
    DeleteEvent {
        /// The run that the event belongs to.
        run: RunId,
        /// Sequence number of the event.
        seq: RunSeq,
    },
    /// Updates a chunk of a journal.
    UpdateJournal {
        /// The execution that the journal belongs to.
        execution: ExecutionId,
    },
    /// Deletes a chunk of a journal.
    DeleteJournal {
        /// The execution that the journal belongs to.
        execution: ExecutionId,
    },
    /// Truncates the table of run events.
    EmptyEvents,
}
