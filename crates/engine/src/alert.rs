//! Alerts for operators. Each alert is a line in the log, a count in the metrics and a row in the
//! store, so that it can be found in any one of them.

use onward_base::{SharedText, Timestamp};
use onward_journal::ExecutionId;
use onward_store::tables::{AlertCode, AlertRow, AlertSeverity};
use onward_store::{ChangeOutcome, Commit, Error, RowChange, SerialId, Store};

/// An alert that has not been raised yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingAlert {
    /// Kind of the alert.
    pub code: AlertCode,
    /// Urgency of the alert.
    pub severity: AlertSeverity,
    /// Id of the affected object, for example of an execution.
    pub subject: SharedText,
    /// Deduplication key: an alert with the same key is not raised again.
    pub dedup_key: SharedText,
    /// Human-readable description of what happened.
    pub message: SharedText,
}

/// Length of the prefix of a reason, in bytes, that is used as deduplication key.
const DEDUP_KEY_BYTES_MAX: usize = 256;

impl PendingAlert {
    /// Alert for an execution that cannot make progress, with the reason.
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
            message: format!("execution is stuck and is retried periodically: {reason}").into(),
        }
    }

    /// Stores the alert and, if it is new, logs and counts it.
    pub(crate) async fn raise_once(&self, store: &dyn Store, now: Timestamp) -> Result<(), Error> {
        let mut commit = Commit::new();
        commit.changes.push(self.insert_change(now));
        if store.commit(commit).await?.changes.first() == Some(&ChangeOutcome::Applied) {
            self.log_and_count();
        }
        Ok(())
    }

    /// The insert of the alert's row; the row of an alert that was raised before is left unchanged.
    pub(crate) fn insert_change(&self, now: Timestamp) -> RowChange {
        RowChange::insert_or_keep(&AlertRow {
            alert_id: SerialId::default(),
            code: self.code,
            severity: self.severity,
            subject: self.subject.clone(),
            occasion: self.dedup_key.clone(),
            message: self.message.clone(),
            raised_at: now,
        })
    }

    /// Logs and counts the alert; to be called only if its row is new.
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
