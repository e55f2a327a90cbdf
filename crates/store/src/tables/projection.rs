//! What the projector keeps: snapshots, and what it has to tell people.

use onward_base::{SharedText, Timestamp};
use onward_runs::{RunId, RunSeq, RunSnapshot};

use crate::{Error, SerialId, define_table};

define_table! {
    /// The snapshot of a run, as the projector keeps it.
    "run_snapshots", key 1,
    index BY_WHOLENESS ["is_whole", "run_id"];
    pub struct RunSnapshotRow {
        /// The run.
        pub run_id: RunId = "run_id",
        /// The last event in it.
        pub last_event_seq: RunSeq = "last_event_seq",
        /// How far the snapshot can be trusted: `CURRENT`, `STALE` or `INCONSISTENT`.
        pub condition: SharedText = "condition",
        /// Whether no event is missing from the log.
        pub is_whole: bool = "is_whole",
        /// The events that were missing when the log was read to its end, as JSON.
        pub holes: Option<SharedText> = "holes",
        /// The snapshot, as JSON.
        pub snapshot: SharedText = "snapshot",
        /// When it was made.
        pub projected_at: Timestamp = "projected_at",
    }
}

impl RunSnapshotRow {
    /// The snapshot itself.
    pub fn decode_snapshot(&self) -> Result<RunSnapshot, Error> {
        serde_json::from_str(&self.snapshot).map_err(|error| {
            Error::Corrupt(format!("the snapshot of run {}: {error}", self.run_id))
        })
    }
}

define_table! {
    /// Something a person should know.
    "alerts", key 1,
    unique ["code", "subject", "occasion"],
    index BY_SUBJECT ["subject", "alert_id"];
    pub struct AlertRow {
        /// Its number.
        pub alert_id: SerialId = "alert_id",
        /// What kind of thing, such as `PROJECTOR_GAP_DETECTED`.
        pub code: SharedText = "code",
        /// How urgent: `P1` or `P2`.
        pub severity: SharedText = "severity",
        /// What it is about: a run, for example.
        pub subject: SharedText = "subject",
        /// What makes raising it again a repetition.
        pub occasion: SharedText = "occasion",
        /// What happened and what to do, for people.
        pub message: SharedText = "message",
        /// When.
        pub raised_at: Timestamp = "raised_at",
    }
}
