//! `onward signal`: tell an execution something.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::Json;
use onward_api::execution::{Sent, Signal};
use onward_journal::Name;
use serde::Serialize;

use super::ExecutionArg;
use crate::access::{Want, WorkArgs};
use crate::paint;

/// Send a signal to an execution; it is kept until the execution waits for it
///
/// Exit codes: 0 it is on its way, 2 it could not be sent.
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
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    sent: Sent,
    name: &'a str,
    payload: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let payload = super::payload(args.payload.as_deref())?;
    let signal = Signal { name: args.name.to_string(), payload: payload.clone(), key: args.key.clone() };
    let sent = onward.signal(&args.execution.id, signal).await?;
    if args.json {
        let told = Told { sent, name: &args.name, payload, key: args.key.as_deref() };
        writeln!(io::stdout(), "{}", serde_json::to_string(&told)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    paint::say(format_args!("signal {} is on its way to {}", &*args.name, sent.execution));
    Ok(ExitCode::SUCCESS)
}
