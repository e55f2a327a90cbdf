//! `onward show`: prints an execution and its journal.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::execution::{ChildExecution, ExecutionView};
use onward_journal::{ExecutionId, JournalEvent, JournalState};

use super::ExecutionArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::journal::table::JournalTable;
use crate::{console, journal_reader};

/// Show an execution and its journal as a timeline
///
/// Exit codes: 0 the execution was shown, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct ExecutionShowArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Maximum number of children in the summary; the timeline and the JSON output contain all.
const CHILDREN_SHOWN: usize = 8;

pub(crate) async fn show_execution(args: &ExecutionShowArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let shown = onward.get_execution(&args.execution.id).await?;
    if args.json {
        writeln!(console::json_output(), "{}", serde_json::to_string(&shown)?)?;
    } else {
        let id = shown.execution.parse()?;
        print_execution(
            &shown,
            id,
            &journal_reader::read_journal_events(&*onward, id, 0, 0).await?,
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_execution(
    shown: &ExecutionView,
    id: ExecutionId,
    events: &[JournalEvent],
) -> anyhow::Result<()> {
    let children = &shown.children;
    let mut out = console::text_output();
    writeln!(
        out,
        "execution  {id}\nfunction   {}\ncomponent  {}",
        console::escape_control_chars(&shown.function),
        shown.component
    )?;
    writeln!(
        out,
        "started    {}\nstate      {}",
        shown.created_at,
        console::style_state_name(&shown.state)
    )?;
    for (place, child) in children.iter().take(CHILDREN_SHOWN).enumerate() {
        let label = if place == 0 { "children" } else { "" };
        let state = child.state.as_deref().unwrap_or("not found");
        let ChildExecution {
            promise,
            execution,
            function,
            ..
        } = child;
        writeln!(
            out,
            "{label:<10} {promise} {} {} ({})",
            &execution[..12],
            console::escape_control_chars(function),
            console::style_state_name(state)
        )?;
    }
    if children.len() > CHILDREN_SHOWN {
        writeln!(
            out,
            "{:<10} and {} more",
            "",
            children.len() - CHILDREN_SHOWN
        )?;
    }
    if let Some(next) = &shown.continued_as {
        writeln!(out, "continued  {next}")?;
    }
    writeln!(out)?;
    drop(out);
    let mut fold = JournalState::new(id);
    let mut table = JournalTable::new();
    for event in events {
        fold.push_event(event)?;
        if let Some(state) = fold.execution_state() {
            table.write_event_row(event, id, state)?;
        }
    }
    Ok(table.finish()?)
}
