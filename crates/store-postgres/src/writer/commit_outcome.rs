//! Determines the outcome of a transaction when the connection was lost during its commit. The
//! server keeps the status of every transaction for a long time. After a crash it may have assigned
//! the transaction's id to another transaction, so a committed transaction must also have left the
//! writer's mark.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection;
use crate::error::StatementFailure;
use crate::writer::transaction_mark::TransactionMark;

/// Outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    Committed,
    Aborted,
    /// The server did not answer in time, or no longer has the status.
    Unknown,
}

/// Delay between two queries for the status.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls the server until the transaction has ended or the deadline `until` passes.
pub(super) async fn resolve_commit_outcome(
    pool: &Pool,
    transaction: &str,
    mark: TransactionMark,
    until: Instant,
) -> CommitOutcome {
    while Instant::now() < until {
        match timeout_at(until, query_commit_outcome(pool, transaction, mark)).await {
            Ok(Ok(Some(fate))) => return fate,
            Ok(Err(StatementFailure::Permanent(_))) | Err(_) => return CommitOutcome::Unknown,
            // The transaction is still in progress, or there is no connection yet.
            Ok(Ok(None) | Err(_)) => sleep(POLL_INTERVAL).await,
        }
    }
    CommitOutcome::Unknown
}

async fn query_commit_outcome(
    pool: &Pool,
    transaction: &str,
    mark: TransactionMark,
) -> Result<Option<CommitOutcome>, StatementFailure> {
    let client = connection::acquire_connection(pool).await?;
    let statement = client
        .prepare_cached("SELECT pg_xact_status($1::text::xid8)")
        .await?;
    let row = client.query_one(&statement, &[&transaction]).await?;
    Ok(match row.try_get::<_, Option<&str>>(0)? {
        // This query sees everything that was committed when the server returned the status.
        Some("committed") if mark.is_committed(&client).await? => Some(CommitOutcome::Committed),
        Some("committed") => Some(CommitOutcome::Aborted),
        Some("aborted") => Some(CommitOutcome::Aborted),
        Some("in progress") => None,
        _ => Some(CommitOutcome::Unknown),
    })
}
