//! Tables that the projector writes: run snapshots and alerts.

use onward_base::{SharedText, Timestamp, text_enum};
use onward_runs::{RunId, RunSeq, RunSnapshot};

use crate::{Error, SerialId, define_table};

text_enum! {
    /// How far a stored snapshot can be trusted.
    SnapshotCondition {
        /// The snapshot agrees with the log up to its last event.
        Current = "CURRENT",
        /// Events are missing from the log that the snapshot was reduced from.
        Stale = "STALE",
        /// The log has events that were not allowed and that the snapshot ignores.
        Inconsistent = "INCONSISTENT",
    }
}

define_table! {
    /// The snapshot of a run as the projector last stored it.
    "run_snapshots", key 1,
    index BY_WHOLENESS ["is_whole", "run_id"];
    pub struct RunSnapshotRow {
        /// The run that the snapshot describes.
        pub run_id: RunId = "run_id",
        /// Sequence number of the last event included in the snapshot.
        pub last_event_seq: RunSeq = "last_event_seq",
        /// How far the snapshot can be trusted.
        pub condition: SnapshotCondition = "condition",
        /// Whether the log has no missing events.
        pub is_whole: bool = "is_whole",
        /// The events that were missing when the projector read the log to its end, as JSON.
        pub holes: Option<SharedText> = "holes",
        /// The snapshot, as JSON.
        pub snapshot: SharedText = "snapshot",
        /// When the projector wrote the snapshot.
        pub projected_at: Timestamp = "projected_at",
    }
}

impl RunSnapshotRow {
    /// Decodes the snapshot. Fails with [`Error::Corrupt`] if the JSON is invalid.
    pub fn decode_snapshot(&self) -> Result<RunSnapshot, Error> {
        serde_json::from_str(&self.snapshot).map_err(|error| {
            Error::Corrupt(format!("the snapshot of run {}: {error}", self.run_id))
        })
    }
}

text_enum! {
    /// Kind of an alert; the names are stable, for alerting rules and dashboards.
    AlertCode {
        /// Snapshots are more than five seconds behind.
        ProjectorLagHigh = "PROJECTOR_LAG_HIGH",
        /// Events of a run are missing between others.
        ProjectorGapDetected = "PROJECTOR_GAP_DETECTED",
        /// An event is in the log that its run's state does not allow.
        InvalidTransition = "INVALID_TRANSITION",
        /// An execution cannot make progress.
        ExecutionStuck = "EXECUTION_STUCK",
    }
}

text_enum! {
    /// Urgency of an alert.
    AlertSeverity {
        /// An operator should look now.
        P1 = "P1",
        /// An operator should look today.
        P2 = "P2",
    }
}

define_table! {
    /// An alert: a condition that an operator should know about.
    "alerts", key 1,
    unique ["code", "subject", "occasion"],
    index BY_SUBJECT ["subject", "alert_id"];
    pub struct AlertRow {
        /// Number of the alert, assigned by the store.
        pub alert_id: SerialId = "alert_id",
        /// Kind of the alert.
        pub code: AlertCode = "code",
        /// Urgency of the alert.
        pub severity: AlertSeverity = "severity",
        /// The object that the alert is about, for example a run id.
        pub subject: SharedText = "subject",
        /// Deduplication key: an alert with the same code, subject and occasion is raised only
        /// once.
        pub occasion: SharedText = "occasion",
        /// Message for operators: what happened and what to do.
        pub message: SharedText = "message",
        /// When the alert was raised.
        pub raised_at: Timestamp = "raised_at",
    }
}
