//! Redirection of queued tasks whose function was deployed after they were queued: the next attempt
//! runs in the component instead of a worker.

use onward_journal::ExecutionError;
use onward_store::tables::{FunctionRow, TaskRow, WorkerTaskState};
use onward_store::{Error, RecordReader as _, Store, TableScan};

use super::TASK_PAGE_SIZE;
use super::held_task::completion_commit;

/// Error of an attempt that was queued for a worker when its function was deployed.
pub(crate) fn deployed_meanwhile_error() -> ExecutionError {
    ExecutionError::from_kind_name(
        "unknown_function",
        "the function was deployed in a component after its task was queued for a worker",
    )
}

/// Ends the attempts that were queued for a worker when their function was deployed: the component
/// performs the next attempt.
pub(crate) async fn redirect_queued_tasks(
    store: &dyn Store,
    named: &FunctionRow,
) -> Result<(), Error> {
    let FunctionRow {
        tenant_id,
        project_id,
        environment_id,
        name,
        ..
    } = named;
    let scan = TableScan::by_index::<TaskRow>(TaskRow::BY_FUNCTION)
        .where_equal(tenant_id)
        .where_equal(project_id)
        .where_equal(environment_id)
        .where_equal(name);
    let mut scan = scan
        .where_equal(&WorkerTaskState::Queued)
        .with_limit(TASK_PAGE_SIZE);
    loop {
        let waiting: Vec<(TaskRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = waiting.last() else {
            return Ok(());
        };
        scan = scan.starting_after(last);
        // A task without another attempt stays queued for a worker.
        let waiting = waiting.into_iter().filter(|(row, _)| !row.is_last);
        for (row, version) in waiting {
            match store
                .commit(completion_commit(
                    &row,
                    version,
                    Err(deployed_meanwhile_error()),
                    store.now().await?,
                )?)
                .await
            {
                // On a conflict a worker has claimed the task first, which is equally good.
                Ok(_) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Calls [`redirect_queued_tasks`] for every deployed function.
pub(crate) async fn redirect_all_queued_tasks(store: &dyn Store) -> Result<(), Error> {
    let mut scan = TableScan::all_rows::<FunctionRow>();
    loop {
        let page: Vec<(FunctionRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        scan = scan.starting_after(last);
        for (named, _) in page {
            redirect_queued_tasks(store, &named).await?;
        }
    }
}
