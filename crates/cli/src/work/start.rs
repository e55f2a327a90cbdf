//! `onward start`: a workflow begins.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_engine::client::{Client, Started};
use onward_journal::{ExecutionId, InvokeResult};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{RunArgs, WorkArgs};
use crate::paint;

/// Start a workflow
///
/// With --wait the execution is run here, if no other process runs it, and its result is printed.
///
/// Exit codes: 0 it was started (with --wait: it completed), 1 it failed or was cancelled, 2 it could not be started.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArgs,
    /// The workflow
    function: String,
    /// Its input as JSON; - for standard input
    #[arg(default_value = "null", hide_default_value = true)]
    input: String,
    /// Starting again with the same key and input returns the same execution
    #[arg(long)]
    key: Option<String>,
    /// Wait for the result
    #[arg(long)]
    wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    execution: String,
    existed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

#[derive(Serialize)]
struct Failure {
    kind: String,
    message: String,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open_existing().await?;
    let input = super::payload(Some(&args.input))?;
    let started = client.start(&args.function, input, args.key.as_deref()).await?;
    if args.wait && !args.json {
        say_started(&started);
        paint::say(format_args!("waiting; `onward why {}` says what for", &started.execution.to_string()[..12]));
    }
    let result = if args.wait { Some(wait(args, &client, started.execution).await?) } else { None };
    report(args, &started, result.as_ref())?;
    Ok(ExitCode::from(u8::from(matches!(result, Some(Err(_))))))
}

/// Runs what there is to run until the execution is over.
async fn wait(args: &Args, client: &Client, execution: ExecutionId) -> anyhow::Result<InvokeResult> {
    let engine = args.run.engine(client).open().await?;
    let result = engine.outcome(execution).await?;
    engine.stop().await?;
    Ok(result)
}

fn say_started(started: &Started) {
    let word = if started.existed { "was started before" } else { "started" };
    paint::say(format_args!("{word}: {}", started.execution));
}

fn report(args: &Args, started: &Started, result: Option<&InvokeResult>) -> anyhow::Result<()> {
    let Started { execution, existed } = started;
    if args.json {
        let (value, error) = match result {
            None => (None, None),
            Some(Ok(payload)) => (Some(RawValue::from_string(payload.as_str().to_owned())?), None),
            Some(Err(error)) => {
                (None, Some(Failure { kind: error.kind.to_string(), message: error.message.to_string() }))
            }
        };
        let report = Report { execution: execution.to_string(), existed: *existed, result: value, error };
        writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    if !args.wait {
        say_started(started);
    }
    match result {
        None => writeln!(io::stdout(), "{execution}")?,
        Some(Ok(payload)) => writeln!(io::stdout(), "{}", payload.as_str())?,
        Some(Err(error)) => {
            paint::say(format_args!("{}: {}", paint::error("failed"), paint::plain(&error.to_string())));
        }
    }
    Ok(())
}
