//! `onward journal show`: the journal of an execution, in the form that `onward journal check` reads.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::access::{Want, WorkArgs};
use crate::work::ExecutionArg;

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
    let onward = args.work.open(Want::Read).await?;
    let lines = onward.journal(&args.execution.id, 0, 0).await?;
    io::stdout().lock().write_all(lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
