//! `onward tasks`: lists the tasks of workers.

use std::process::ExitCode;

use onward_api::task::{ListTasksQuery, TaskSummary};

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::paging::{ListOutputArgs, ListPage};

/// List tasks that workers are performing and tasks that wait for a worker
///
/// Tasks of a deployed component run in the engine and are not listed; onward why shows them.
///
/// Exit codes: 0 the tasks were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct TaskListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    list: ListOutputArgs,
}

pub(crate) async fn list_tasks(args: &TaskListArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let heading = format!(
        "{:<24}  {:<7}  {:>7}  {:<12}  {:<27}  worker",
        "function", "state", "attempt", "execution", "since"
    );
    let page = async |limit, after| {
        let page = onward
            .list_tasks(ListTasksQuery {
                limit: Some(limit),
                after,
            })
            .await?;
        Ok(ListPage {
            items: page.tasks,
            next: page.next,
        })
    };
    args.list
        .print_pages(&heading, format_task_row, page)
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn format_task_row(task: &TaskSummary) -> String {
    let TaskSummary {
        function,
        state,
        attempt,
        execution,
        queued_at,
        worker,
        ..
    } = task;
    let worker = console::escape_control_chars(worker.as_deref().unwrap_or_default());
    let function = console::escape_control_chars(function);
    format!(
        "{function:<24}  {state:<7}  {attempt:>7}  {:<12}  {queued_at:<27}  {worker}",
        &execution[..12]
    )
}
