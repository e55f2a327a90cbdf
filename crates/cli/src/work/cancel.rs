//! `onward cancel`: ask an execution to stop.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;

use super::{ExecutionArg, WorkArgs};
use crate::paint;

/// Ask an execution to stop: what it waits for is interrupted, and it cleans up
///
/// Exit codes: 0 it was asked, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Why, for whoever reads its journal
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Sent<'a> {
    execution: String,
    sent: &'static str,
    reason: &'a str,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open_existing().await?;
    let row = args.execution.find(&client).await?;
    client.cancel(row.execution_id, &args.reason).await?;
    if args.json {
        let sent = Sent { execution: row.execution_id.to_string(), sent: "cancel", reason: &args.reason };
        writeln!(io::stdout(), "{}", serde_json::to_string(&sent)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    paint::say(format_args!("{} is asked to stop", row.execution_id));
    Ok(ExitCode::SUCCESS)
}
