//! `onward tasks`: what workers perform, or will.

use std::process::ExitCode;

use onward_api::task::{TaskInfo, TaskListing};

use crate::access::{Want, WorkArgs};
use crate::pages::{ListArgs, Page};
use crate::paint;

/// List tasks that workers perform, and those that wait for a worker
///
/// Tasks of a component that is deployed are performed by the engine itself and are not listed: onward why tells of them.
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let heading =
        format!("{:<24}  {:<7}  {:>7}  {:<12}  {:<27}  worker", "function", "state", "attempt", "execution", "since");
    let page = async |limit, after| {
        let page = onward.tasks(TaskListing { limit: Some(limit), after }).await?;
        Ok(Page { items: page.tasks, next: page.next })
    };
    args.list.print(&heading, line, page).await?;
    Ok(ExitCode::SUCCESS)
}

fn line(task: &TaskInfo) -> String {
    let TaskInfo { function, state, attempt, execution, queued_at, worker, .. } = task;
    let worker = paint::plain(worker.as_deref().unwrap_or_default());
    format!("{function:<24}  {state:<7}  {attempt:>7}  {:<12}  {queued_at:<27}  {worker}", &execution[..12])
}
