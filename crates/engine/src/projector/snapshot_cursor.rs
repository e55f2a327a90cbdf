//! What the events at hand mean for a snapshot. Nothing here reads or writes.

use onward_runs::{RunEventGap, RunEventRecord, RunSeq, RunSnapshot, detect_gap, reduce_event};

use crate::projector::MissingRanges;

/// A snapshot on its way through a log.
pub(super) struct SnapshotCursor {
    pub(super) snapshot: RunSnapshot,
    pub(super) missing_ranges: MissingRanges,
}

/// What to do about a gap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GapPolicy {
    /// Stop before it: it may be filled by the next read.
    Stop,
    /// This is the whole committed log: what is missing from it is missing.
    Accept,
}

impl SnapshotCursor {
    /// Takes in `events` up to the first gap that is not to be accepted, and returns that gap.
    pub(super) fn apply_events(
        mut self,
        events: &[RunEventRecord],
        on_gap: GapPolicy,
    ) -> (Self, Option<RunEventGap>) {
        for event in events {
            if let Some(gap) = detect_gap(self.snapshot.last_event_seq, event.run_seq) {
                match on_gap {
                    GapPolicy::Stop => return (self, Some(gap)),
                    GapPolicy::Accept => self.missing_ranges.push_gap(gap),
                }
            }
            self.snapshot = reduce_event(self.snapshot, event);
        }
        (self, None)
    }

    pub(super) const fn watermark(&self) -> RunSeq {
        self.snapshot.last_event_seq
    }
}
