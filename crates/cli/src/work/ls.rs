//! `onward ls`: the executions of a store.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_store::tables::Execution;
use serde::Serialize;

use super::WorkArgs;
use crate::paint;

/// List executions, oldest first
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// Only executions in this state
    #[arg(long, ignore_case = true, value_parser = ["Running", "Blocked", "Cancelling", "Completed", "Failed", "Cancelled"])]
    state: Option<String>,
    /// Only executions of this workflow
    #[arg(long)]
    function: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    execution: String,
    function: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    created_at: String,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let mut out = io::stdout().lock();
    let (mut left, mut after) = (args.limit, None);
    if !args.json {
        writeln!(out, "{:<12}  {:<10}  {:<24}  {:<27}  key", "execution", "state", "function", "started")?;
    }
    while left > 0 {
        let rows = client.executions(after.as_ref(), 1_000).await?;
        let Some(last) = rows.last().cloned() else { break };
        after = Some(last);
        for row in rows.iter().filter(|row| is_wanted(args, row)).take(left) {
            left -= 1;
            line(args, &mut out, row)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(args: &Args, row: &Execution) -> bool {
    let same =
        |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found));
    same(&args.state, &row.state) && same(&args.function, &row.function)
}

fn line(args: &Args, out: &mut impl io::Write, row: &Execution) -> anyhow::Result<()> {
    let execution = row.execution_id.to_string();
    let (function, state, key) = (&*row.function, &*row.state, row.start_key.as_deref());
    let created_at = row.created_at.to_string();
    if args.json {
        let line = Line { execution, function, state, key, created_at };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    } else {
        let (short, key) = (&execution[..12], paint::plain(key.unwrap_or_default()));
        writeln!(out, "{short}  {state:<10}  {function:<24}  {created_at:<27}  {key}")?;
    }
    Ok(())
}
