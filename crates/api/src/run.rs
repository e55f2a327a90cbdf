//! Wire types for run events, run snapshots and the verification of runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RawJson;

/// Request to append run events.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendRunEventsRequest {
    /// `RunEventWrite` documents, in the order in which they are to be stored; 1 to 10000.
    #[schema(min_items = 1, max_items = 10_000)]
    pub events: Vec<RawJson>,
}

/// The result of appending one run event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEventReceipt {
    /// The id under which the event is stored.
    pub event_id: String,
    /// The sequence number of the event in its run, starting with 1.
    pub run_seq: u64,
    /// When the event was stored (RFC 3339).
    pub persisted_at: String,
    /// Whether this request stored the event.
    pub persisted: bool,
    /// Whether an event with the same idempotency key was already stored.
    pub idempotent: bool,
    /// Whether the stored event with this key has different content; the first one is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

/// The result of appending run events.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AppendRunEventsResponse {
    /// One result for each event, in the same order.
    pub results: Vec<RunEventReceipt>,
}

/// One page of the events of a run, in the order of their sequence.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunEventPage {
    /// `RunEventRecord` documents.
    pub events: Vec<RawJson>,
    /// The sequence of the last event of the page, to pass as `after` for the next page.
    pub watermark: u64,
    /// The event that follows those of the page, if it cannot be read; absent otherwise. The page
    /// ends before it. To skip the event, pass its sequence as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<UnreadableRunEvent>,
}

/// A stored run event that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadableRunEvent {
    /// The sequence of the event.
    pub run_seq: u64,
    /// Why the event cannot be read, for people.
    pub message: String,
}

/// One error that verification found in the stored runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifyFinding {
    /// The run with the error; absent if the finding is about the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The sequence of the event with the error; absent if the finding is about the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seq: Option<u64>,
    /// The kind of error; stable, so that programs can match on it.
    pub code: String,
    /// Details of the error, for people.
    pub message: String,
}

impl fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.run_id, self.run_seq) {
            (None, _) => write!(f, "store: {}", self.message),
            (Some(run), None) => write!(f, "run {run}: {}", self.message),
            (Some(run), Some(seq)) => write!(f, "run {run}, event {seq}: {}", self.message),
        }
    }
}

/// Which idempotency keys of run events a verification accepts as valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyContract {
    /// Keys of contract v2.
    V2Only,
    /// Keys of contract v2 and of contract v1, which imported logs have.
    V2OrV1,
}

/// Where a run snapshot is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotSource {
    /// The stored snapshot, which may be up to a second old.
    Stored,
    /// The log of the run, which is reduced now.
    Log,
}

/// Progress of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyProgress {
    /// An error was found.
    Finding(VerifyFinding),
    /// What was verified so far.
    Examined {
        /// Number of runs verified so far.
        runs: u64,
        /// Number of events verified so far.
        events: u64,
    },
}

/// The final result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyReport {
    /// Whether there were no findings.
    pub ok: bool,
    /// Number of runs that were verified.
    pub runs: u64,
    /// Number of events in these runs.
    pub events: u64,
    /// Number of errors found.
    pub findings: u64,
}

/// The current snapshot of a run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunSnapshotView {
    /// `CURRENT`; `STALE` if events are missing from the log that the snapshot was reduced from;
    /// `INCONSISTENT` if the log has events that were not allowed.
    pub condition: String,
    /// The snapshot: the state that the run's events reduce to.
    pub snapshot: RawJson,
}
