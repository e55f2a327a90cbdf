//! The contract for run events, for those who need nothing else of a store.

use async_trait::async_trait;
use onward_runs::{RunEventRecord, RunEventWrite, RunId, RunSnapshot, incremental_project};

use crate::tables::Snapshot;
use crate::{Appended, Commit, Error, Field, Invalid, Key, Page, Records, Store};

/// Append-only persistence of run events (contract v2.0.0). Every [`Store`] is one.
#[async_trait]
pub trait RunStateStore: Send + Sync {
    /// Appends events, all or none. A duplicate idempotency key is answered with what the first one was given.
    async fn append_events(&self, events: Vec<RunEventWrite>) -> Result<Vec<Appended>, Error>;

    /// Appends one event.
    async fn append_event(&self, event: RunEventWrite) -> Result<Appended, Error> {
        let mut appended = self.append_events(vec![event]).await?;
        appended.pop().ok_or_else(|| Error::corrupt("no answer for an appended event"))
    }

    /// Events of a run in the order of their sequence.
    async fn fetch_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error>;

    /// The snapshot that the projector keeps; `None` until it has seen the run.
    async fn get_snapshot(&self, run: &RunId) -> Result<Option<RunSnapshot>, Error>;

    /// The snapshot that the log gives now.
    async fn project_snapshot(&self, run: &RunId) -> Result<RunSnapshot, Error>;
}

#[async_trait]
impl<S: Store + ?Sized> RunStateStore for S {
    async fn append_events(&self, events: Vec<RunEventWrite>) -> Result<Vec<Appended>, Error> {
        Ok(self.commit(Commit::new().events(events)).await?.events)
    }

    async fn fetch_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.run_events(run, page).await
    }

    async fn get_snapshot(&self, run: &RunId) -> Result<Option<RunSnapshot>, Error> {
        let stored: Option<(Snapshot, u64)> = self.get(Key(vec![run.to_value()])).await?;
        stored.map(|(stored, _)| stored.decode()).transpose()
    }

    async fn project_snapshot(&self, run: &RunId) -> Result<RunSnapshot, Error> {
        let mut snapshot = RunSnapshot::new(run.clone());
        loop {
            let before = snapshot.last_event_seq;
            let events = self.run_events(run, Page::after(before)).await?;
            if events.is_empty() {
                break;
            }
            snapshot = incremental_project(snapshot, &events);
            if snapshot.last_event_seq == before {
                return Err(Error::corrupt(format!("no event of run {run} after {before} comes after it")));
            }
        }
        if snapshot.last_event_seq == onward_runs::RunSeq::ZERO {
            return Err(Invalid::NoSuchRun(run.clone()).into());
        }
        Ok(snapshot)
    }
}
