//! `onward cancel`: requests the cancellation of an execution.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::execution::{AcceptedMessage, CancelExecutionRequest};
use serde::Serialize;

use super::ExecutionArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Cancel an execution: interrupt what it waits for and let it clean up
///
/// Exit codes: 0 the cancellation was requested, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct ExecutionCancelArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Reason to record in the journal
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ExecutionCancelOutput<'a> {
    #[serde(flatten)]
    sent: AcceptedMessage,
    reason: &'a str,
}

pub(crate) async fn cancel_execution(args: &ExecutionCancelArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let sent = onward
        .cancel_execution(
            &args.execution.id,
            CancelExecutionRequest {
                reason: args.reason.clone(),
            },
        )
        .await?;
    if args.json {
        let output = ExecutionCancelOutput {
            sent,
            reason: &args.reason,
        };
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&output)?
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    console::print_message(format_args!("cancellation requested: {}", sent.execution));
    Ok(ExitCode::SUCCESS)
}
