//! Retention: deletes all data of a run or an execution.

use std::time::Duration;

use deadpool_postgres::{Pool, Transaction};
use onward_journal::ExecutionId;
use onward_runs::RunId;
use onward_store::{Error, PurgeTarget};
use tokio::time::timeout;

use crate::connection;
use crate::error::StatementFailure;

/// Class of the advisory locks that keep an execution complete: an append to its journal holds the
/// lock of its slot in shared mode, a purge holds it exclusively. Advisory locks are used because
/// there may be no row to lock.
pub(crate) const PURGE_LOCK_CLASS: i32 = 0x6f6e_7764;

/// Returns the lock slot of an execution. There are only 256 slots, because the server's lock table
/// is limited.
pub(crate) fn purge_lock_slot(execution: &ExecutionId) -> i32 {
    i32::from(execution.as_bytes()[0])
}

/// Deletes the target and returns whether there was anything to delete.
pub(crate) async fn purge_with_timeout(
    pool: &Pool,
    purge: &PurgeTarget,
    deadline: Duration,
) -> Result<bool, Error> {
    let late = || Error::Unavailable("the database did not answer in time".to_owned());
    timeout(deadline, purge_with_retries(pool, purge))
        .await
        .unwrap_or_else(|_| Err(late()))
}

async fn purge_with_retries(pool: &Pool, purge: &PurgeTarget) -> Result<bool, Error> {
    let mut is_removed = false;
    let mut tries = 0;
    loop {
        let tried = purge_once(pool, purge, &mut is_removed).await;
        tries += 1;
        if !matches!(
            tried,
            Err(StatementFailure::Race(_) | StatementFailure::ConnectionLost(_))
        ) || tries == connection::CONNECTION_ATTEMPTS_MAX
        {
            return tried
                .map(|()| is_removed)
                .map_err(StatementFailure::into_error);
        }
        connection::sleep_backoff(tries).await;
    }
}

/// Sets `is_removed` once a row was deleted: if the commit is repeated because its acknowledgement
/// was lost, there may be nothing left to delete.
async fn purge_once(
    pool: &Pool,
    purge: &PurgeTarget,
    is_removed: &mut bool,
) -> Result<(), StatementFailure> {
    let mut client = connection::acquire_connection(pool).await?;
    let transaction = client.transaction().await?;
    let removed = match purge {
        PurgeTarget::Run(run) => remove_run(&transaction, run).await?,
        PurgeTarget::Execution(execution) => remove_execution(&transaction, execution).await?,
    };
    *is_removed |= removed > 0;
    Ok(transaction.commit().await?)
}

/// Deletes a run. Its events are deleted with the head. Snapshots are locked first, as in every
/// other transaction.
async fn remove_run(
    transaction: &Transaction<'_>,
    run: &RunId,
) -> Result<u64, tokio_postgres::Error> {
    let snapshots = transaction
        .execute("DELETE FROM run_snapshots WHERE run_id = $1", &[&&**run])
        .await?;
    // An alert is raised once per occasion: a later run with the same name is a new occasion.
    transaction
        .execute("DELETE FROM alerts WHERE subject = $1", &[&&**run])
        .await?;
    let heads = transaction
        .execute("DELETE FROM runs WHERE run_id = $1", &[&&**run])
        .await?;
    Ok(snapshots + heads)
}

/// Deletes an execution. Its row is deleted first, because the journal cannot be deleted while the
/// row exists.
async fn remove_execution(
    transaction: &Transaction<'_>,
    execution: &ExecutionId,
) -> Result<u64, tokio_postgres::Error> {
    transaction
        .execute(
            "SELECT pg_advisory_xact_lock($1, $2)",
            &[&PURGE_LOCK_CLASS, &purge_lock_slot(execution)],
        )
        .await?;
    // Deletes only after the lock is held, so that events appended while waiting for it are deleted
    // as well.
    let id = execution.as_bytes().as_slice();
    let mut removed = 0;
    for table in ["executions", "inbox", "journal", "tasks"] {
        removed += transaction
            .execute(
                &format!("DELETE FROM {table} WHERE execution_id = $1"),
                &[&id],
            )
            .await?;
    }
    Ok(removed)
}
