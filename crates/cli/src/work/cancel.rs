//! `onward cancel`: ask an execution to stop.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::execution::{Cancel, Sent};
use serde::Serialize;

use super::ExecutionArg;
use crate::access::{Want, WorkArgs};
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
struct Told<'a> {
    #[serde(flatten)]
    sent: Sent,
    reason: &'a str,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let sent = onward.cancel(&args.execution.id, Cancel { reason: args.reason.clone() }).await?;
    if args.json {
        let told = Told { sent, reason: &args.reason };
        writeln!(io::stdout(), "{}", serde_json::to_string(&told)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    paint::say(format_args!("{} is asked to stop", sent.execution));
    Ok(ExitCode::SUCCESS)
}
