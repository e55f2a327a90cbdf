//! `onward start`: a workflow begins.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::execution::{Failure, Outcome, Start, Started};

use super::RunArgs;
use crate::access::{Access, Want, WorkArgs};
use crate::paint;
use crate::waiting::persist;

/// How long a server is asked to wait at a time, in milliseconds.
const WAIT_MS: u64 = 30_000;

/// Start a workflow
///
/// With --wait its result is printed. On a store the execution is run here, if no other process runs it.
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

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let input = super::payload(Some(&args.input))?;
    let start = Start { function: args.function.clone(), input, key: args.key.clone(), wait_ms: None };
    let mut started = onward.start(start).await?;
    if args.wait {
        if !args.json {
            say_started(&started);
            paint::say(format_args!("waiting; `onward why {}` says what for", &started.execution[..12]));
        }
        let Outcome { result, error } = wait(args, &onward, &started.execution).await?;
        (started.result, started.error) = (result, error);
    }
    report(args, &started)?;
    Ok(ExitCode::from(u8::from(started.error.is_some())))
}

/// Until the execution is over. Without a server, what there is to run is run here.
async fn wait(args: &Args, onward: &Access, execution: &str) -> anyhow::Result<Outcome> {
    let Some(client) = &onward.client else {
        loop {
            let outcome = persist(async || onward.outcome(execution, WAIT_MS).await).await?;
            if outcome.is_known() {
                return Ok(outcome);
            }
        }
    };
    let engine = args.run.engine(client).as_stopgap().open().await?;
    engine.outcome(execution.parse()?).await?.ok();
    engine.stop().await?;
    Ok(onward.outcome(execution, 0).await?)
}

fn say_started(started: &Started) {
    let word = if started.existed { "was started before" } else { "started" };
    paint::say(format_args!("{word}: {}", started.execution));
}

fn report(args: &Args, started: &Started) -> anyhow::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(started)?)?;
        return Ok(());
    }
    if !args.wait {
        say_started(started);
    }
    match (&started.result, &started.error) {
        (Some(result), _) => writeln!(io::stdout(), "{}", result.as_str())?,
        (_, Some(Failure { kind, message })) => {
            paint::say(format_args!("{}: {kind}: {}", paint::error("failed"), paint::plain(message)));
        }
        _ => writeln!(io::stdout(), "{}", started.execution)?,
    }
    Ok(())
}
