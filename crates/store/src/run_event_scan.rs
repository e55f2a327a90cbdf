//! Reads the events of a run past those that cannot be read: one damaged event does not hide the
//! others of its page.

use onward_runs::{RunEventRecord, RunId, RunSeq};

use crate::{Error, RunEventQuery, Store};

/// Events of a run up to the first one that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableRunEvents {
    /// The events that can be read, in sequence order.
    pub events: Vec<RunEventRecord>,
    /// The event that follows them, if it cannot be read: its sequence number and what is wrong
    /// with it. The scan continues after it.
    pub unreadable: Option<(RunSeq, String)>,
}

/// Reads a page of events. Fails only if the store cannot be read at all.
pub async fn read_readable_events(
    store: &(impl Store + ?Sized),
    run: &RunId,
    page: RunEventQuery,
) -> Result<ReadableRunEvents, Error> {
    let (bad_seq, reason) = match store.read_run_events(run, page).await {
        Err(Error::UnreadableEvent {
            run_seq, reason, ..
        }) => (run_seq, reason),
        other => {
            return other.map(|events| ReadableRunEvents {
                events,
                unreadable: None,
            });
        }
    };
    // An upper bound of the events that precede it: a log with gaps has fewer.
    let before = bad_seq.as_u64().saturating_sub(page.after.as_u64() + 1);
    let before = usize::try_from(before).unwrap_or(usize::MAX);
    let mut limit = before.min(page.limit.saturating_sub(1));
    let mut is_next = limit == before;
    while limit > 0 {
        match store
            .read_run_events(run, RunEventQuery { limit, ..page })
            .await
        {
            Err(Error::UnreadableEvent { .. }) => {
                limit /= 2;
                is_next = limit == 0;
            }
            other => {
                return Ok(ReadableRunEvents {
                    events: other?,
                    unreadable: is_next.then_some((bad_seq, reason)),
                });
            }
        }
    }
    Ok(ReadableRunEvents {
        events: Vec::new(),
        unreadable: Some((bad_seq, reason)),
    })
}
