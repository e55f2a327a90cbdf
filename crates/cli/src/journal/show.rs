//! `onward journal show`: the journal of an execution, in the form that `onward journal check` reads.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_journal::jsonl::Line;

use crate::work::{ExecutionArg, WorkArgs};

/// Print the journal of an execution as JSON Lines, one event a line
///
/// `onward journal check -` reads what this prints.
///
/// Exit codes: 0 it was printed, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object a line, as without this option
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let row = args.execution.find(&client).await?;
    let mut out = io::stdout().lock();
    for event in client.journal(row.execution_id).await? {
        writeln!(out, "{}", Line::new(&event, row.execution_id))?;
    }
    Ok(ExitCode::SUCCESS)
}
