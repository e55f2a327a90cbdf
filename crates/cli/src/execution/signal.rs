//! `onward signal`: sends a signal to an execution.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::RawJson;
use onward_api::execution::{AcceptedMessage, SignalExecutionRequest};
use onward_base::BoundedName;
use serde::Serialize;

use super::ExecutionArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Send a signal to an execution; it is kept until the execution waits for it
///
/// Exit codes: 0 the signal is stored for delivery, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct ExecutionSignalArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Name of the signal
    name: BoundedName,
    /// Payload as JSON; - for standard input [default: null]
    payload: Option<String>,
    /// Idempotency key: sending again with the same key does nothing
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ExecutionSignalOutput<'a> {
    #[serde(flatten)]
    sent: AcceptedMessage,
    name: &'a str,
    payload: RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

pub(crate) async fn signal_execution(args: &ExecutionSignalArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let payload = super::parse_payload(args.payload.as_deref())?;
    let signal = SignalExecutionRequest {
        name: args.name.to_string(),
        payload: payload.clone(),
        key: args.key.clone(),
    };
    let sent = onward.signal_execution(&args.execution.id, signal).await?;
    if args.json {
        let output = ExecutionSignalOutput {
            sent,
            name: &args.name,
            payload,
            key: args.key.as_deref(),
        };
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&output)?
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    console::print_message(format_args!(
        "signal {} sent to {}",
        console::escape_control_chars(&args.name),
        sent.execution
    ));
    Ok(ExitCode::SUCCESS)
}
