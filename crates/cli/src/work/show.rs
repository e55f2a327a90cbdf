//! `onward show`: what happened to an execution.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_journal::Fold;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ExecutionArg, WorkArgs};
use crate::journal::table::Table;

/// Show an execution: what it is, and its journal as a timeline
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
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let row = args.execution.find(&client).await?;
    let id = row.execution_id;
    let events = client.journal(id).await?;
    let mut fold = Fold::new(id);
    if !args.json {
        let mut out = io::stdout().lock();
        writeln!(out, "execution  {id}\nfunction   {}\ncomponent  {}", row.function, row.component_digest)?;
        writeln!(out, "started    {}\nstate      {}\n", row.created_at, row.state)?;
        drop(out);
        let mut table = Table::new();
        for event in &events {
            fold.push(event)?;
            if let Some(state) = fold.state() {
                table.row(event, id, state)?;
            }
        }
        table.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let (result, error) = match client.result(id).await? {
        None => (None, None),
        Some(Ok(payload)) => (Some(RawValue::from_string(payload.as_str().to_owned())?), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    let shown = Shown {
        execution: id.to_string(),
        function: &row.function,
        component: row.component_digest.to_string(),
        state: &row.state,
        created_at: row.created_at.to_string(),
        events: events.len(),
        result,
        error,
    };
    writeln!(io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    Ok(ExitCode::SUCCESS)
}
