//! What a person should know. Each alert is a line in the log, a count in the metrics and a row in the store: whoever looks
//! in one place finds it.

use std::fmt;

use onward_base::{SharedText, Timestamp};
use onward_journal::ExecutionId;
use onward_store::tables::AlertRow;
use onward_store::{ChangeOutcome, Commit, Error, RowChange, SerialId, Store};

/// What kind of thing happened; stable, for rules and dashboards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertCode {
    /// Snapshots are more than five seconds behind.
    ProjectorLagHigh,
    /// Events of a run are missing between others.
    ProjectorGapDetected,
    /// An event is in the log that its run's state does not allow.
    InvalidTransition,
    /// An execution cannot go on.
    ExecutionStuck,
}

impl fmt::Display for AlertCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProjectorLagHigh => "PROJECTOR_LAG_HIGH",
            Self::ProjectorGapDetected => "PROJECTOR_GAP_DETECTED",
            Self::InvalidTransition => "INVALID_TRANSITION",
            Self::ExecutionStuck => "EXECUTION_STUCK",
        })
    }
}

/// How urgent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertSeverity {
    /// Somebody should look now.
    P1,
    /// Somebody should look today.
    P2,
}

impl fmt::Display for AlertSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P1 => "P1",
            Self::P2 => "P2",
        })
    }
}

/// An alert that is about to be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingAlert {
    /// What kind of thing.
    pub code: AlertCode,
    /// How urgent.
    pub severity: AlertSeverity,
    /// What it is about.
    pub subject: SharedText,
    /// What makes raising it again a repetition.
    pub dedup_key: SharedText,
    /// What happened, for people.
    pub message: SharedText,
}

/// How much of a reason tells it from others.
const DEDUP_KEY_BYTES_MAX: usize = 256;

impl PendingAlert {
    /// An execution that cannot go on, and why.
    pub(crate) fn execution_stuck(execution: ExecutionId, reason: &str) -> Self {
        let occasion = reason
            .char_indices()
            .take_while(|(at, _)| *at < DEDUP_KEY_BYTES_MAX)
            .map(|(_, it)| it);
        Self {
            code: AlertCode::ExecutionStuck,
            severity: AlertSeverity::P1,
            subject: execution.to_string().into(),
            dedup_key: occasion.collect::<String>().into(),
            message: format!("it cannot go on, and is tried again from time to time: {reason}")
                .into(),
        }
    }

    /// Raises it, once.
    pub(crate) async fn raise_once(&self, store: &dyn Store, now: Timestamp) -> Result<(), Error> {
        let mut commit = Commit::new();
        commit.changes.push(self.insert_change(now));
        if store.commit(commit).await?.changes.first() == Some(&ChangeOutcome::Applied) {
            self.log_and_count();
        }
        Ok(())
    }

    /// The row; an alert that was raised before is kept as it is.
    pub(crate) fn insert_change(&self, now: Timestamp) -> RowChange {
        RowChange::insert_or_keep(&AlertRow {
            alert_id: SerialId::default(),
            code: self.code.to_string().into(),
            severity: self.severity.to_string().into(),
            subject: self.subject.clone(),
            occasion: self.dedup_key.clone(),
            message: self.message.clone(),
            raised_at: now,
        })
    }

    /// The line in the log and the count; only for an alert whose row is new.
    pub(crate) fn log_and_count(&self) {
        let Self {
            code,
            severity,
            subject,
            message,
            ..
        } = self;
        metrics::counter!("onward_alerts_total", "code" => code.to_string(), "severity" => severity.to_string())
            .increment(1);
        match severity {
            AlertSeverity::P1 => tracing::error!(%code, %severity, %subject, "{message}"),
            AlertSeverity::P2 => tracing::warn!(%code, %severity, %subject, "{message}"),
        }
    }
}
