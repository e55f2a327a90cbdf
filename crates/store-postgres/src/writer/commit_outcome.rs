//! What became of a transaction when the connection was lost while it was being committed. The server knows: it keeps
//! the fate of every transaction for a long time. But one that has crashed may since have given the number of the transaction
//! to another, so what was committed has to show the writer's mark as well.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection;
use crate::error::StatementFailure;
use crate::writer::transaction_mark::TransactionMark;

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    Committed,
    Aborted,
    /// The server could not be asked in time, or does not know.
    Unknown,
}

/// How long to wait before asking again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Asks until the transaction has come to its end.
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
            // Still in progress, or no connection yet.
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
        // What is asked now sees all that was committed by the time of that answer.
        Some("committed") if mark.is_committed(&client).await? => Some(CommitOutcome::Committed),
        Some("committed") => Some(CommitOutcome::Aborted),
        Some("aborted") => Some(CommitOutcome::Aborted),
        Some("in progress") => None,
        _ => Some(CommitOutcome::Unknown),
    })
}
