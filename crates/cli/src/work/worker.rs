//! `onward worker`: runs the executions of a store until it is stopped. `onward demo` starts it to kill it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use super::RunArgs;
use crate::access::{Want, WorkArgs};

/// Run the executions of a store until Ctrl-C
///
/// Any number of processes can work on one Postgres store, and one on a SQLite store; another takes over when one is gone.
///
/// Exit codes: 0 it was stopped, 2 it could not work, or its store failed.
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
    let Some(client) = access.client else { bail!("a worker runs the executions of a store: --store URL") };
    let mut engine = args.run.engine(&client).lease(Duration::from_millis(args.lease_ms)).open().await?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        asked = tokio::signal::ctrl_c() => asked?,
        _ = terminated.recv() => {}
        error = engine.failed() => return Err(error.into()),
    }
    engine.stop().await?;
    Ok(ExitCode::SUCCESS)
}
