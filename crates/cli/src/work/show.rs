//! `onward show`: what happened to an execution.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::execution::{Child, Execution};
use onward_journal::{ExecutionId, Fold, JournalEvent};

use super::ExecutionArg;
use crate::access::{Want, WorkArgs};
use crate::journal::table::Table;
use crate::{events, paint};

/// Show an execution: what it is, and its journal as a timeline
///
/// Exit codes: 0 it was shown, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Children that are shown to people; the timeline and the JSON have all.
const CHILDREN_SHOWN: usize = 8;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let shown = onward.execution(&args.execution.id).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    } else {
        let id = shown.execution.parse()?;
        text(&shown, id, &events::of(&*onward, id, 0, 0).await?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(shown: &Execution, id: ExecutionId, events: &[JournalEvent]) -> anyhow::Result<()> {
    let children = &shown.children;
    let mut out = anstream::stdout().lock();
    writeln!(out, "execution  {id}\nfunction   {}\ncomponent  {}", shown.function, shown.component)?;
    writeln!(out, "started    {}\nstate      {}", shown.created_at, paint::state(&shown.state))?;
    for (place, child) in children.iter().take(CHILDREN_SHOWN).enumerate() {
        let label = if place == 0 { "children" } else { "" };
        let state = child.state.as_deref().unwrap_or("not there");
        let Child { promise, execution, function, .. } = child;
        writeln!(out, "{label:<10} {promise} {} {function} ({})", &execution[..12], paint::state(state))?;
    }
    if children.len() > CHILDREN_SHOWN {
        writeln!(out, "{:<10} and {} more", "", children.len() - CHILDREN_SHOWN)?;
    }
    if let Some(next) = &shown.continued_as {
        writeln!(out, "continued  {next}")?;
    }
    writeln!(out)?;
    drop(out);
    let mut fold = Fold::new(id);
    let mut table = Table::new();
    for event in events {
        fold.push(event)?;
        if let Some(state) = fold.state() {
            table.row(event, id, state)?;
        }
    }
    Ok(table.finish()?)
}
