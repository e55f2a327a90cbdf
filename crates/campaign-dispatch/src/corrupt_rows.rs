//! Logs rows that the dispatcher skips because they cannot be decoded.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onward_base::SharedText;
use onward_store::Error;
use tokio::time::Instant;

use crate::decoded_page::CorruptRow;

/// Minimum time between two log lines about the same row: the dispatcher reads it with every poll.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of rows kept in memory.
const ROWS_MAX: usize = 1_000;

/// The corrupt rows by id, each with the time at which it was last logged.
#[derive(Default)]
pub(crate) struct CorruptRowLog(Mutex<BTreeMap<SharedText, Instant>>);

impl CorruptRowLog {
    /// Logs the corrupt rows of a page.
    pub(crate) fn log_rows(&self, rows: &[CorruptRow]) {
        for CorruptRow { id, error } in rows {
            self.log_row(id, error);
        }
    }

    /// Logs that a row cannot be decoded, unless it was logged recently.
    pub(crate) fn log_row(&self, id: &SharedText, error: &Error) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged
            .get(id)
            .is_some_and(|last| last.elapsed() < LOG_INTERVAL)
        {
            return;
        }
        if logged.len() >= ROWS_MAX {
            logged.clear();
        }
        logged.insert(id.clone(), Instant::now());
        tracing::error!(row = %id, %error, "skipping a corrupt row of a campaign: run `onward doctor`");
    }
}
