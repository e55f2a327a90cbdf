//! `onward cancel`: ask an execution to stop.

use std::process::ExitCode;

use super::{ExecutionArg, WorkArgs};
use crate::paint;

/// Ask an execution to stop: what it waits for is interrupted, and it cleans up
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Why, for whoever reads its journal
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open().await?;
    let row = args.execution.find(&client).await?;
    client.cancel(row.execution_id, &args.reason).await?;
    paint::say(format_args!("{} is asked to stop", row.execution_id));
    Ok(ExitCode::SUCCESS)
}
