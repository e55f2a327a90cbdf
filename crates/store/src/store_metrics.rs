//! Metrics that every adapter records: the number of commits grouped into one database transaction,
//! and its duration.

use std::time::Duration;

/// Records one database transaction with the number of commits in it and its duration.
pub fn record_transaction(commits: usize, took: Duration) {
    metrics::counter!("onward_store_transactions_total").increment(1);
    let commits = u32::try_from(commits).unwrap_or(u32::MAX);
    metrics::histogram!("onward_store_commits_per_transaction").record(f64::from(commits));
    metrics::histogram!("onward_store_transaction_seconds").record(took.as_secs_f64());
}
