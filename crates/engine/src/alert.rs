//! What a person should know. Each alert is a line in the log, a count in the metrics and a row in the store: whoever looks
//! in one place finds it.

use std::fmt;

use onward_journal::{ExecutionId, Text, Timestamp};
use onward_store::tables::Alert;
use onward_store::{Change, Commit, Error, Outcome, Serial, Store};

/// What kind of thing happened; stable, for rules and dashboards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Snapshots are more than five seconds behind.
    ProjectorLagHigh,
    /// Events of a run are missing between others.
    ProjectorGapDetected,
    /// An event is in the log that its run's state does not allow.
    InvalidTransition,
    /// An execution cannot go on.
    ExecutionStuck,
}

impl fmt::Display for Code {
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
pub enum Severity {
    /// Somebody should look now.
    P1,
    /// Somebody should look today.
    P2,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P1 => "P1",
            Self::P2 => "P2",
        })
    }
}

/// An alert that is about to be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// What kind of thing.
    pub code: Code,
    /// How urgent.
    pub severity: Severity,
    /// What it is about.
    pub subject: Text,
    /// What makes raising it again a repetition.
    pub occasion: Text,
    /// What happened, for people.
    pub message: Text,
}

/// How much of a reason tells it from others.
const OCCASION_BYTES: usize = 256;

impl Alarm {
    /// An execution that cannot go on, and why.
    pub(crate) fn stuck(execution: ExecutionId, reason: &str) -> Self {
        let occasion = reason.char_indices().take_while(|(at, _)| *at < OCCASION_BYTES).map(|(_, it)| it);
        Self {
            code: Code::ExecutionStuck,
            severity: Severity::P1,
            subject: execution.to_string().into(),
            occasion: occasion.collect::<String>().into(),
            message: format!("it cannot go on, and is tried again from time to time: {reason}").into(),
        }
    }

    /// Raises it, once.
    pub(crate) async fn raise(&self, store: &dyn Store, now: Timestamp) -> Result<(), Error> {
        let mut commit = Commit::new();
        commit.changes.push(self.change(now));
        if store.commit(commit).await?.changes.first() == Some(&Outcome::Made) {
            self.announce();
        }
        Ok(())
    }

    /// The row; an alert that was raised before is kept as it is.
    pub(crate) fn change(&self, now: Timestamp) -> Change {
        Change::insert_or_keep(&Alert {
            alert_id: Serial::default(),
            code: self.code.to_string().into(),
            severity: self.severity.to_string().into(),
            subject: self.subject.clone(),
            occasion: self.occasion.clone(),
            message: self.message.clone(),
            raised_at: now,
        })
    }

    /// The line in the log and the count; only for an alert whose row is new.
    pub(crate) fn announce(&self) {
        let Self { code, severity, subject, message, .. } = self;
        metrics::counter!("onward_alerts_total", "code" => code.to_string(), "severity" => severity.to_string())
            .increment(1);
        match severity {
            Severity::P1 => tracing::error!(%code, %severity, %subject, "{message}"),
            Severity::P2 => tracing::warn!(%code, %severity, %subject, "{message}"),
        }
    }
}
