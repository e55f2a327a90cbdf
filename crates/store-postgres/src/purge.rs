//! Retention: removing the whole of a run or an execution.

use deadpool_postgres::Pool;
use onward_journal::ExecutionId;
use onward_runs::RunId;
use onward_store::{Error, Purge};

use crate::connect;
use crate::error::Trouble;

/// The advisory locks that keep an execution whole: appending to its journal shares the lock of its slot, purging it
/// holds the lock alone. A row to lock there may not be.
pub(crate) const LOCKS: i32 = 0x6f6e_7764;

/// How often a purge is tried that others get in the way of.
const TRIES: usize = 4;

/// The lock of an execution. They are few, because the server has only so many.
pub(crate) fn slot(execution: &ExecutionId) -> i32 {
    i32::from(execution.as_bytes()[0])
}

/// Removes it, and tells whether there was anything to remove.
pub(crate) async fn purge(pool: &Pool, purge: &Purge) -> Result<bool, Error> {
    let mut tried = once(pool, purge).await;
    for _ in 1..TRIES {
        if !matches!(tried, Err(Trouble::Race(_) | Trouble::Lost(_))) {
            break;
        }
        tried = once(pool, purge).await;
    }
    tried.map_err(Trouble::into_error)
}

async fn once(pool: &Pool, purge: &Purge) -> Result<bool, Trouble> {
    match purge {
        Purge::Run(run) => remove_run(pool, run).await,
        Purge::Execution(execution) => remove_execution(pool, execution).await,
    }
}

/// The events go with the head. Snapshots come first, as in any other transaction.
async fn remove_run(pool: &Pool, run: &RunId) -> Result<bool, Trouble> {
    let mut client = connect::take(pool).await?;
    let transaction = client.transaction().await?;
    let mut removed = transaction.execute("DELETE FROM run_snapshots WHERE run_id = $1", &[&&**run]).await?;
    removed += transaction.execute("DELETE FROM runs WHERE run_id = $1", &[&&**run]).await?;
    transaction.commit().await?;
    Ok(removed > 0)
}

/// The row comes first: the journal stays as long as it.
async fn remove_execution(pool: &Pool, execution: &ExecutionId) -> Result<bool, Trouble> {
    let mut client = connect::take(pool).await?;
    let id = execution.as_bytes().as_slice();
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1, $2)", &[&LOCKS, &slot(execution)]).await?;
    // Only now: the events that were appended while we waited are to go as well.
    let mut removed = 0;
    for table in ["executions", "inbox", "journal", "timers"] {
        let sql = format!("DELETE FROM {table} WHERE execution_id = $1");
        removed += transaction.execute(&sql, &[&id]).await?;
    }
    transaction.commit().await?;
    Ok(removed > 0)
}
