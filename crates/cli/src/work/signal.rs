//! `onward signal`: tell an execution something.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_journal::Name;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ExecutionArg, WorkArgs};
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
struct Sent<'a> {
    execution: String,
    sent: &'static str,
    name: &'a str,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open_existing().await?;
    let row = args.execution.find(&client).await?;
    let payload = super::payload(args.payload.as_deref())?;
    let said = RawValue::from_string(payload.as_str().to_owned())?;
    let key = args.key.as_deref();
    client.signal(row.execution_id, args.name.clone(), payload, key).await?;
    if args.json {
        let execution = row.execution_id.to_string();
        let sent = Sent { execution, sent: "signal", name: &args.name, payload: said, key };
        writeln!(io::stdout(), "{}", serde_json::to_string(&sent)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    paint::say(format_args!("signal {} is on its way to {}", &*args.name, row.execution_id));
    Ok(ExitCode::SUCCESS)
}
