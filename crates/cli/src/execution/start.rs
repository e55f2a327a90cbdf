//! `onward start`: starts an execution of a workflow.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::execution::{
    ExecutionResult, FailureDetail, StartExecutionRequest, StartExecutionResponse,
};

use super::EngineArgs;
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::console;
use crate::retry::retry_transient;

/// Long-poll timeout of one request in milliseconds.
const WAIT_MS: u64 = 30_000;

/// Start a workflow
///
/// With --wait, prints its result. With --store and --wait, this process runs the execution if no
/// other process does.
///
/// Exit codes: 0 the execution was started (with --wait: it completed), 1 it failed or was
/// cancelled, 2 it could not be started.
#[derive(clap::Args)]
pub(crate) struct ExecutionStartArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Name of the workflow
    function: String,
    /// Input as JSON; - for standard input [default: null]
    #[arg(default_value = "null", hide_default_value = true)]
    input: String,
    /// Idempotency key: starting again with the same key and input returns the same execution
    #[arg(long)]
    key: Option<String>,
    /// Wait for the result
    #[arg(long)]
    wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn start_execution(args: &ExecutionStartArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let input = super::parse_payload(Some(&args.input))?;
    let start = StartExecutionRequest {
        function: args.function.clone(),
        input,
        key: args.key.clone(),
        wait_ms: None,
    };
    let mut started = onward.start_execution(start).await?;
    if args.wait {
        if !args.json {
            print_started(&started);
            console::print_message(format_args!(
                "waiting for the result; `onward why {}` explains what the execution waits for",
                &started.execution[..12]
            ));
        }
        let ExecutionResult { result, error } =
            wait_for_outcome(args, &onward, &started.execution).await?;
        (started.result, started.error) = (result, error);
    }
    print_result(args, &started)?;
    Ok(ExitCode::from(u8::from(started.error.is_some())))
}

/// Waits until the execution has ended. Without a server, runs it in this process as long as no
/// other node works on the store.
async fn wait_for_outcome(
    args: &ExecutionStartArgs,
    onward: &TargetConnection,
    execution: &str,
) -> anyhow::Result<ExecutionResult> {
    let Some(client) = &onward.store_client else {
        loop {
            let outcome =
                retry_transient(async || onward.get_execution_result(execution, WAIT_MS).await)
                    .await?;
            if outcome.has_ended() {
                return Ok(outcome);
            }
        }
    };
    let engine = args
        .engine
        .engine_builder(client)
        .as_fallback()
        .open()
        .await?;
    engine.wait_for_result(execution.parse()?).await?.ok();
    engine.stop().await?;
    Ok(onward.get_execution_result(execution, 0).await?)
}

fn print_started(started: &StartExecutionResponse) {
    let outcome = if started.existed {
        "already started"
    } else {
        "started"
    };
    console::print_message(format_args!("{outcome}: {}", started.execution));
}

fn print_result(args: &ExecutionStartArgs, started: &StartExecutionResponse) -> anyhow::Result<()> {
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(started)?
        )?;
        return Ok(());
    }
    if !args.wait {
        print_started(started);
    }
    match (&started.result, &started.error) {
        (Some(result), _) => writeln!(console::json_output(), "{}", result.as_str())?,
        (_, Some(FailureDetail { kind, message })) => {
            console::print_message(format_args!(
                "{}: {}: {}",
                console::style_error("failed"),
                console::escape_control_chars(kind),
                console::escape_control_chars(message)
            ));
        }
        _ => writeln!(console::text_output(), "{}", started.execution)?,
    }
    Ok(())
}
