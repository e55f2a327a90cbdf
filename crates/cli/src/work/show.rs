//! `onward show`: what happened to an execution.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_engine::client::Client;
use onward_journal::{Event, ExecutionId, Fold, JournalEvent, PromiseId};
use onward_store::tables::Execution;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ExecutionArg, WorkArgs};
use crate::journal::table::Table;
use crate::paint;

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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    execution: String,
    function: &'a str,
    component: String,
    state: &'a str,
    created_at: String,
    events: usize,
    children: Vec<Child>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Another execution that performed an operation of this one.
#[derive(Serialize)]
struct Child {
    promise: String,
    execution: String,
    function: String,
    /// Absent when it is not there.
    state: Option<String>,
}

/// Children that are shown to people; the timeline and the JSON have all.
const CHILDREN_SHOWN: usize = 8;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let row = args.execution.find(&client).await?;
    let events = client.journal(row.execution_id).await?;
    let children = children(&client, &row, &events).await?;
    if args.json {
        json(&client, &row, &events, children).await?;
    } else {
        text(&row, &events, &children)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The children of an execution, in the order in which they were started.
async fn children(client: &Client, row: &Execution, events: &[JournalEvent]) -> anyhow::Result<Vec<Child>> {
    let mut functions: BTreeMap<&PromiseId, String> = BTreeMap::new();
    let mut children = Vec::new();
    for recorded in events {
        match &recorded.event {
            Event::InvokeScheduled { promise_id, function_name, .. } => {
                functions.insert(promise_id, function_name.to_string());
            }
            Event::InvokeStarted { promise_id, child: Some(child), .. } => {
                let state = client.execution(*child).await?.map(|child| child.state.to_string());
                children.push(Child {
                    promise: promise_id.relative_to(row.execution_id).to_string(),
                    execution: child.to_string(),
                    function: functions.get(promise_id).cloned().unwrap_or_default(),
                    state,
                });
            }
            _ => {}
        }
    }
    Ok(children)
}

/// Who took its place.
fn successor(events: &[JournalEvent]) -> Option<ExecutionId> {
    events.last()?.event.successor()
}

fn text(row: &Execution, events: &[JournalEvent], children: &[Child]) -> anyhow::Result<()> {
    let id = row.execution_id;
    let mut out = anstream::stdout().lock();
    writeln!(out, "execution  {id}\nfunction   {}\ncomponent  {}", row.function, row.component_digest)?;
    writeln!(out, "started    {}\nstate      {}", row.created_at, paint::state(&row.state))?;
    for (place, child) in children.iter().take(CHILDREN_SHOWN).enumerate() {
        let label = if place == 0 { "children" } else { "" };
        let state = child.state.as_deref().unwrap_or("not there");
        let Child { promise, execution, function, .. } = child;
        writeln!(out, "{label:<10} {promise} {} {function} ({})", &execution[..12], paint::state(state))?;
    }
    if children.len() > CHILDREN_SHOWN {
        writeln!(out, "{:<10} and {} more", "", children.len() - CHILDREN_SHOWN)?;
    }
    if let Some(next) = successor(events) {
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

async fn json(client: &Client, row: &Execution, events: &[JournalEvent], children: Vec<Child>) -> anyhow::Result<()> {
    let (result, error) = match client.result(row.execution_id).await? {
        None => (None, None),
        Some(Ok(payload)) => (Some(RawValue::from_string(payload.as_str().to_owned())?), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    let shown = Shown {
        execution: row.execution_id.to_string(),
        function: &row.function,
        component: row.component_digest.to_string(),
        state: &row.state,
        created_at: row.created_at.to_string(),
        events: events.len(),
        children,
        continued_as: successor(events).map(|next| next.to_string()),
        result,
        error,
    };
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&shown)?)?)
}
