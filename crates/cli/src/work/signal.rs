//! `onward signal`: tell an execution something.

use std::process::ExitCode;

use onward_journal::Name;

use super::{ExecutionArg, WorkArgs};
use crate::paint;

/// Send a signal to an execution; it is kept until the execution waits for it
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// The name of the signal
    name: Name,
    /// What it says, as JSON; - for standard input
    payload: Option<String>,
    /// Sending it again with the same key does nothing
    #[arg(long)]
    key: Option<String>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open().await?;
    let row = args.execution.find(&client).await?;
    let payload = super::payload(args.payload.as_deref())?;
    client.signal(row.execution_id, args.name.clone(), payload, args.key.as_deref()).await?;
    paint::say(format_args!("signal {} is on its way to {}", &*args.name, row.execution_id));
    Ok(ExitCode::SUCCESS)
}
