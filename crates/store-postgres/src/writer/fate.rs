//! What became of a transaction when the connection was lost while it was being committed. The server knows: it keeps
//! the fate of every transaction for a long time. But one that has crashed may since have given the number of the transaction
//! to another, so what was committed has to show the writer's mark as well.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connect;
use crate::error::Trouble;
use crate::writer::mark::Mark;

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    Aborted,
    /// The server could not be asked in time, or does not know.
    Unknown,
}

/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until the transaction has come to its end.
pub(super) async fn fate(pool: &Pool, transaction: &str, mark: Mark, until: Instant) -> Fate {
    while Instant::now() < until {
        match timeout_at(until, ask(pool, transaction, mark)).await {
            Ok(Ok(Some(fate))) => return fate,
            Ok(Err(Trouble::Refused(_))) | Err(_) => return Fate::Unknown,
            // Still in progress, or no connection yet.
            Ok(Ok(None) | Err(_)) => sleep(PAUSE).await,
        }
    }
    Fate::Unknown
}

async fn ask(pool: &Pool, transaction: &str, mark: Mark) -> Result<Option<Fate>, Trouble> {
    let client = connect::take(pool).await?;
    let statement = client.prepare_cached("SELECT pg_xact_status($1::text::xid8)").await?;
    let row = client.query_one(&statement, &[&transaction]).await?;
    Ok(match row.try_get::<_, Option<&str>>(0)? {
        // What is asked now sees all that was committed by the time of that answer.
        Some("committed") if mark.is_left(&client).await? => Some(Fate::Committed),
        Some("committed") => Some(Fate::Aborted),
        Some("aborted") => Some(Fate::Aborted),
        Some("in progress") => None,
        _ => Some(Fate::Unknown),
    })
}
