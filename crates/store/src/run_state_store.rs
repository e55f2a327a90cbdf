//! The contract for run events, for producers and readers that need no other part of a store.

use async_trait::async_trait;
use onward_runs::{RunEventRecord, RunEventWrite, RunId, RunSnapshot, project_from_snapshot};

use crate::tables::RunSnapshotRow;
use crate::{
    ColumnCodec, Commit, Error, EventReceipt, InvalidRequest, RecordReader, RowKey, RunEventQuery,
    Store,
};

/// Append-only persistence of run events (contract v2.0.0). Every [`Store`] implements it.
#[async_trait]
pub trait RunStateStore: Send + Sync {
    /// Appends events, all or none. For a duplicate idempotency key, returns the result of the
    /// first event with that key.
    async fn append_events(&self, events: Vec<RunEventWrite>) -> Result<Vec<EventReceipt>, Error>;

    /// Appends one event and returns its receipt.
    async fn append_event(&self, event: RunEventWrite) -> Result<EventReceipt, Error> {
        let mut appended = self.append_events(vec![event]).await?;
        appended
            .pop()
            .ok_or_else(|| Error::corrupt("the commit returned no receipt for an appended event"))
    }

    /// Returns events of a run in sequence order.
    async fn fetch_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error>;

    /// Returns the snapshot that the projector stored, or `None` if the projector has not processed
    /// the run yet.
    async fn get_snapshot(&self, run: &RunId) -> Result<Option<RunSnapshot>, Error>;

    /// Computes the snapshot from the current log. Fails if the run has no events.
    async fn project_snapshot(&self, run: &RunId) -> Result<RunSnapshot, Error>;
}

#[async_trait]
impl<S: Store + ?Sized> RunStateStore for S {
    async fn append_events(&self, events: Vec<RunEventWrite>) -> Result<Vec<EventReceipt>, Error> {
        Ok(self
            .commit(Commit::new().append_events(events))
            .await?
            .events)
    }

    async fn fetch_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.read_run_events(run, page).await
    }

    async fn get_snapshot(&self, run: &RunId) -> Result<Option<RunSnapshot>, Error> {
        let stored: Option<(RunSnapshotRow, u64)> =
            self.read_record(RowKey(vec![run.to_value()])).await?;
        stored
            .map(|(stored, _)| stored.decode_snapshot())
            .transpose()
    }

    async fn project_snapshot(&self, run: &RunId) -> Result<RunSnapshot, Error> {
        let mut snapshot = RunSnapshot::new(run.clone());
        loop {
            let before = snapshot.last_event_seq;
            let events = self
                .read_run_events(run, RunEventQuery::starting_after(before))
                .await?;
            if events.is_empty() {
                break;
            }
            snapshot = project_from_snapshot(snapshot, &events);
            if snapshot.last_event_seq == before {
                return Err(Error::corrupt(format!(
                    "run {run}: the events read after {before} do not advance its snapshot"
                )));
            }
        }
        if snapshot.last_event_seq == onward_runs::RunSeq::ZERO {
            return Err(InvalidRequest::NoSuchRun(run.clone()).into());
        }
        Ok(snapshot)
    }
}
