//! Run events and snapshots.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RawJson;

/// Run events to append.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendRunEventsRequest {
    /// `RunEventWrite` documents, in the order in which they are to be stored.
    #[schema(min_items = 1, max_items = 10_000)]
    pub events: Vec<RawJson>,
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEventReceipt {
    /// The id under which it is stored.
    pub event_id: String,
    /// Its place in the run.
    pub run_seq: u64,
    /// When it was stored.
    pub persisted_at: String,
    /// Whether it was stored now.
    pub persisted: bool,
    /// Whether it was there already.
    pub idempotent: bool,
    /// Whether what was there says something else; the first one is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

/// What became of all of them.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AppendRunEventsResponse {
    /// One for each event, in the same order.
    pub results: Vec<RunEventReceipt>,
}

/// Events of a run, in the order of their sequence.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunEventPage {
    /// `RunEventRecord` documents.
    pub events: Vec<RawJson>,
    /// The sequence of the last one; pass it as `after` for those that follow.
    pub watermark: u64,
}

/// Something that is wrong with what is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifyFinding {
    /// In which run; absent when it is about the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// At which event; absent when it is about the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seq: Option<u64>,
    /// What; stable, for programs.
    pub wrong: String,
    /// The particulars, for people.
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

/// What is said while runs are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyProgress {
    /// Something is wrong.
    Finding(VerifyFinding),
    /// So much was looked at.
    Examined {
        /// Runs.
        runs: u64,
        /// Events.
        events: u64,
    },
}

/// What is said in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyReport {
    /// Whether all is right.
    pub ok: bool,
    /// Runs that were looked at.
    pub runs: u64,
    /// Their events.
    pub events: u64,
    /// What is wrong.
    pub findings: u64,
}

/// Where a run stands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunSnapshotView {
    /// `CURRENT`; `STALE` when events are missing from the log behind it; `INCONSISTENT` when the log holds events that were
    /// not allowed.
    pub condition: String,
    /// The snapshot.
    pub snapshot: RawJson,
}
