//! The ground that a check stands on: an empty store, its clock, and the ways in which checks use them.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{BoxFuture, join_all};
use onward_runs::{RunEventRecord, RunSeq};

use super::check::some;
use super::{Dump, Failure, Opened, Subject, Tampering, dump, sample};
use crate::{Error, Kind, ManualClock, Page, Policy, RunHead, Store};

/// How often a call is repeated that asks for it, before the check gives up.
const TRIES_MAX: usize = 10_000;

/// An empty store, its clock, and where to get more of them. It can be used as the store itself.
pub struct World<'a> {
    subject: &'a dyn Subject,
    opened: Box<dyn Opened>,
    clock: Arc<ManualClock>,
}

impl<'a> World<'a> {
    /// An empty store, at the suite's first instant.
    pub async fn open(subject: &'a dyn Subject, policy: Policy) -> Result<Self, Failure> {
        let clock = Arc::new(ManualClock::new(sample::at(0)));
        let opened = subject.fresh(policy, Arc::clone(&clock)).await?;
        Ok(Self { subject, opened, clock })
    }

    /// Another empty store, with another policy.
    pub(super) async fn fresh(&self, policy: Policy) -> Result<World<'a>, Failure> {
        World::open(self.subject, policy).await
    }

    /// The clock that stamps.
    pub(super) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.opened.store()
    }

    /// Whether the database let the tampering happen.
    pub(super) async fn tamper(&self, tampering: &Tampering) -> Result<bool, Failure> {
        Ok(self.opened.tamper(tampering).await?)
    }

    /// This handle and, if there can be one, another.
    pub(super) async fn pair(&self) -> Result<Pair<'_>, Failure> {
        Ok(Pair { one: self.store(), other: self.opened.another().await? })
    }

    /// The whole log of a run.
    pub(super) async fn log(&self, run: &str) -> Result<Vec<RunEventRecord>, Failure> {
        Ok(dump::log(self.store(), &sample::id(run)).await?)
    }

    /// The head of a run that must be there.
    pub(super) async fn head(&self, run: &str) -> Result<RunHead, Failure> {
        some("the head of the run", self.store().run(&sample::id(run)).await?)
    }

    /// The places of the events of a run after `after`, at most `limit`.
    pub(super) async fn places(&self, run: &str, after: u64, limit: usize) -> Result<Vec<u64>, Failure> {
        let page = Page { after: sample::seq(after), limit };
        let events = self.store().run_events(&sample::id(run), page).await?;
        Ok(events.iter().map(|event| event.run_seq).map(RunSeq::get).collect())
    }

    /// Everything that is stored.
    pub(super) async fn dump(&self) -> Result<Dump, Failure> {
        Ok(Dump::of(self.store()).await?)
    }
}

impl Deref for World<'_> {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        self.store()
    }
}

/// Two handles on the same data, or one that does for both.
pub(super) struct Pair<'a> {
    pub(super) one: &'a (dyn Store + 'static),
    other: Option<Arc<dyn Store>>,
}

impl Pair<'_> {
    pub(super) fn other(&self) -> &(dyn Store + 'static) {
        self.other.as_deref().unwrap_or(self.one)
    }

    /// Makes `count` calls at once, every other one through the other handle.
    pub(super) async fn race<T: Send>(
        &self,
        count: usize,
        call: impl for<'s> Fn(&'s (dyn Store + 'static), usize) -> BoxFuture<'s, Result<T, Error>> + Sync,
    ) -> Vec<Result<T, Error>> {
        let handle = |number: usize| if number.is_multiple_of(2) { self.one } else { self.other() };
        let calls = (0..count).map(|number| insist(handle(number), number, &call));
        join_all(calls).await
    }
}

/// Calls until the store does not ask to call again: under contention it may.
async fn insist<T>(
    store: &(dyn Store + 'static),
    number: usize,
    call: &(impl for<'s> Fn(&'s (dyn Store + 'static), usize) -> BoxFuture<'s, Result<T, Error>> + Sync),
) -> Result<T, Error> {
    let mut answer = call(store, number).await;
    for _ in 0..TRIES_MAX {
        match answer {
            Err(error) if error.kind() == Kind::Retry => pause().await,
            settled => return settled,
        }
        answer = call(store, number).await;
    }
    answer
}

/// Lets the other calls of a race go on.
pub(super) async fn pause() {
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
