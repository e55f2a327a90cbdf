//! `onward node`: runs the executions of a store until it is stopped. `onward demo` starts it to kill it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::RunArgs;
use crate::access::{Want, WorkArgs};
use crate::paint;
use crate::signals::Signals;

/// Run the executions of a store until Ctrl-C, without answering over HTTP
///
/// Any number of processes can work on one Postgres store, and one on a SQLite store; another takes over when one is gone.
///
/// The first SIGTERM or Ctrl-C lets tasks under way end for ten seconds, and gives its shards up; the second ends at once.
///
/// Exit codes: 0 it was stopped, 2 it could not work, or its store failed, 130 it was stopped twice.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArgs,
    /// How long others wait before they take over, in milliseconds
    #[arg(long, default_value_t = 5_000)]
    lease_ms: u64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let access = args.work.open(Want::Create).await?;
    let Some(client) = access.client else { bail!("a node runs the executions of a store: --store URL") };
    let mut engine = args.run.engine(&client).lease(Duration::from_millis(args.lease_ms)).open().await?;
    let mut signals = Signals::listen()?;
    tokio::select! {
        () = signals.next() => {}
        error = engine.failed() => return Err(error.into()),
    }
    paint::say("stopping; once more to stop at once");
    let again = signals.exit_at_next();
    engine.stop().await?;
    again.abort();
    Ok(ExitCode::SUCCESS)
}
