//! What every adapter measures: how many commits share a transaction of the database, and how long that takes.

use std::time::Duration;

/// A transaction was made, with so many commits in it.
pub fn record_transaction(commits: usize, took: Duration) {
    metrics::counter!("onward_store_transactions_total").increment(1);
    let commits = u32::try_from(commits).unwrap_or(u32::MAX);
    metrics::histogram!("onward_store_commits_per_transaction").record(f64::from(commits));
    metrics::histogram!("onward_store_transaction_seconds").record(took.as_secs_f64());
}
