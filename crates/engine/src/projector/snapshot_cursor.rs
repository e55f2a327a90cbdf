//! Applies events to a snapshot and detects gaps. Pure: no I/O.

use onward_runs::{RunEventGap, RunEventRecord, RunSeq, RunSnapshot, detect_gap, reduce_event};

use crate::projector::MissingRanges;

/// A snapshot that is being advanced along a log.
pub(super) struct SnapshotCursor {
    pub(super) snapshot: RunSnapshot,
    pub(super) missing_ranges: MissingRanges,
}

/// What to do at a gap in the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GapPolicy {
    /// Stop before the gap: the next read may fill it.
    Stop,
    /// Accept the gap: this is the whole committed log, so the events are missing.
    Accept,
}

impl SnapshotCursor {
    /// Applies `events` up to the first gap that is not accepted, and returns that gap.
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
