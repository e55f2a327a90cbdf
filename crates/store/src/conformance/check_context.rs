//! The environment of a check: an empty store, its clock, and helpers to use them.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{BoxFuture, join_all};
use onward_runs::{RunEventRecord, RunSeq};

use super::check::expect_some;
use super::{
    ConformanceFailure, OpenedStore, StoreDump, StoreFactory, TamperAttempt, fixtures, store_dump,
};
use crate::{Error, ManualClock, RunEventQuery, RunHead, Store, StoreErrorKind, StorePolicy};

/// Maximum number of retries of a call before the check fails.
const CALL_TRIES_MAX: usize = 10_000;

/// An empty store, its clock, and the factory that opens more stores. It dereferences to the store.
pub struct CheckContext<'a> {
    subject: &'a dyn StoreFactory,
    opened: Box<dyn OpenedStore>,
    clock: Arc<ManualClock>,
}

impl<'a> CheckContext<'a> {
    /// Opens an empty store with the clock at the suite's start time.
    pub async fn open(
        subject: &'a dyn StoreFactory,
        policy: StorePolicy,
    ) -> Result<Self, ConformanceFailure> {
        let clock = Arc::new(ManualClock::new(fixtures::timestamp_after_ms(0)));
        let opened = subject.open_empty(policy, Arc::clone(&clock)).await?;
        Ok(Self {
            subject,
            opened,
            clock,
        })
    }

    /// Opens another empty store of the same implementation, with another policy.
    pub(super) async fn open_another(
        &self,
        policy: StorePolicy,
    ) -> Result<CheckContext<'a>, ConformanceFailure> {
        CheckContext::open(self.subject, policy).await
    }

    /// Returns the clock that timestamps stored data.
    pub(super) fn manual_clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.opened.store()
    }

    /// Tries to change stored data by bypassing the store. Returns whether the database allowed it.
    pub(super) async fn try_tamper(
        &self,
        tampering: &TamperAttempt,
    ) -> Result<bool, ConformanceFailure> {
        Ok(self.opened.try_tamper(tampering).await?)
    }

    /// Returns this handle and, if the implementation supports it, a second one on the same data.
    pub(super) async fn open_handle_pair(&self) -> Result<HandlePair<'_>, ConformanceFailure> {
        Ok(HandlePair {
            first: self.store(),
            second: self.opened.open_second_handle().await?,
        })
    }

    /// Returns the complete log of a run.
    pub(super) async fn read_log(
        &self,
        run: &str,
    ) -> Result<Vec<RunEventRecord>, ConformanceFailure> {
        Ok(store_dump::read_run_log(self.store(), &fixtures::parse_id(run)).await?)
    }

    /// Returns the head of a run. Fails the check if the run does not exist.
    pub(super) async fn expect_head(&self, run: &str) -> Result<RunHead, ConformanceFailure> {
        expect_some(
            "the head of the run",
            self.store().read_run_head(&fixtures::parse_id(run)).await?,
        )
    }

    /// Returns the sequence numbers of the events of a run after `after`, at most `limit`.
    pub(super) async fn read_sequences(
        &self,
        run: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<u64>, ConformanceFailure> {
        let page = RunEventQuery {
            after: fixtures::run_sequence(after),
            limit,
        };
        let events = self
            .store()
            .read_run_events(&fixtures::parse_id(run), page)
            .await?;
        Ok(events
            .iter()
            .map(|event| event.run_seq)
            .map(RunSeq::as_u64)
            .collect())
    }

    /// Returns everything that the store holds.
    pub(super) async fn dump_store(&self) -> Result<StoreDump, ConformanceFailure> {
        Ok(StoreDump::read_all(self.store()).await?)
    }
}

impl Deref for CheckContext<'_> {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        self.store()
    }
}

/// Two handles on the same data, or one handle that serves as both.
pub(super) struct HandlePair<'a> {
    pub(super) first: &'a (dyn Store + 'static),
    second: Option<Arc<dyn Store>>,
}

impl HandlePair<'_> {
    pub(super) fn second_handle(&self) -> &(dyn Store + 'static) {
        self.second.as_deref().unwrap_or(self.first)
    }

    /// Makes `count` calls concurrently, every other one through the second handle.
    pub(super) async fn race_calls<T: Send>(
        &self,
        count: usize,
        call: impl for<'s> Fn(&'s (dyn Store + 'static), usize) -> BoxFuture<'s, Result<T, Error>>
        + Sync,
    ) -> Vec<Result<T, Error>> {
        let handle = |number: usize| {
            if number.is_multiple_of(2) {
                self.first
            } else {
                self.second_handle()
            }
        };
        let calls = (0..count).map(|number| call_until_settled(handle(number), number, &call));
        join_all(calls).await
    }
}

/// Repeats a call while the store answers with a retryable error, which is allowed under
/// contention.
async fn call_until_settled<T>(
    store: &(dyn Store + 'static),
    number: usize,
    call: &(impl for<'s> Fn(&'s (dyn Store + 'static), usize) -> BoxFuture<'s, Result<T, Error>> + Sync),
) -> Result<T, Error> {
    let mut answer = call(store, number).await;
    for _ in 0..CALL_TRIES_MAX {
        match answer {
            Err(error) if error.kind() == StoreErrorKind::Retry => yield_once().await,
            settled => return settled,
        }
        answer = call(store, number).await;
    }
    answer
}

/// Yields once, so that the other calls of a race make progress.
pub(super) async fn yield_once() {
    let mut paused = false;
    poll_fn(|context| {
        if paused {
            return Poll::Ready(());
        }
        paused = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
