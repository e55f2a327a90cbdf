//! What the events at hand mean for a snapshot. Nothing here reads or writes.

use onward_runs::{Gap, RunEventRecord, RunSeq, RunSnapshot, detect_gaps, reduce};

use crate::projector::Holes;

/// A snapshot on its way through a log.
pub(super) struct Follow {
    pub(super) snapshot: RunSnapshot,
    pub(super) holes: Holes,
}

/// What to do about a gap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnGap {
    /// Stop before it: it may be filled by the next read.
    Halt,
    /// This is the whole committed log: what is missing from it is missing.
    Accept,
}

impl Follow {
    /// Takes in `events` up to the first gap that is not to be accepted, and returns that gap.
    pub(super) fn take(mut self, events: &[RunEventRecord], on_gap: OnGap) -> (Self, Option<Gap>) {
        for event in events {
            if let Some(gap) = detect_gaps(self.snapshot.last_event_seq, event.run_seq) {
                match on_gap {
                    OnGap::Halt => return (self, Some(gap)),
                    OnGap::Accept => self.holes.push(gap),
                }
            }
            self.snapshot = reduce(self.snapshot, event);
        }
        (self, None)
    }

    pub(super) const fn watermark(&self) -> RunSeq {
        self.snapshot.last_event_seq
    }
}
