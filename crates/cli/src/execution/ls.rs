//! `onward ls`: lists the executions of a store.

use std::process::ExitCode;

use onward_api::execution::{
    ExecutionOrder, ExecutionStateName, ExecutionSummary, ListExecutionsQuery,
};

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::paging::{ListOutputArgs, ListPage};

/// List executions, newest first
///
/// Exit codes: 0 the executions were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct ExecutionListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Only executions in this state
    #[arg(long, ignore_case = true, value_parser = ["Running", "Blocked", "Cancelling", "Completed", "Failed", "Cancelled"])]
    state: Option<String>,
    /// Only executions of this workflow
    #[arg(long)]
    function: Option<String>,
    /// List the oldest executions first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    list: ListOutputArgs,
}

pub(crate) async fn list_executions(args: &ExecutionListArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let heading = format!(
        "{:<12}  {:<10}  {:<24}  {:<27}  key",
        "execution", "state", "function", "started"
    );
    let state = |name: &String| {
        ExecutionStateName::ALL
            .into_iter()
            .find(|state| state.as_str().eq_ignore_ascii_case(name))
    };
    let query = ListExecutionsQuery {
        state: args.state.as_ref().and_then(state),
        function: args.function.clone(),
        order: if args.oldest {
            ExecutionOrder::Oldest
        } else {
            ExecutionOrder::Newest
        },
        ..ListExecutionsQuery::default()
    };
    let page = async |limit, after| {
        let page = onward
            .list_executions(ListExecutionsQuery {
                limit: Some(limit),
                after,
                ..query.clone()
            })
            .await?;
        Ok(ListPage {
            items: page.executions,
            next: page.next,
        })
    };
    args.list
        .print_pages(&heading, format_execution_row, page)
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn format_execution_row(
    ExecutionSummary {
        execution,
        function,
        state,
        key,
        created_at,
    }: &ExecutionSummary,
) -> String {
    let (short, function, key) = (
        &execution[..12],
        console::escape_control_chars(function),
        console::escape_control_chars(key.as_deref().unwrap_or_default()),
    );
    format!("{short}  {state:<10}  {function:<24}  {created_at:<27}  {key}")
}
