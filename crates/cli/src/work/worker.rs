//! `onward worker`: runs the executions of a store until it is stopped. Not for people: `onward demo` starts it to kill it.

use std::process::ExitCode;
use std::time::Duration;

use tokio::sync::watch;

use super::WorkArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// How long others wait before they take over, in milliseconds
    #[arg(long, default_value_t = 5_000)]
    lease_ms: u64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.open().await?;
    let node = super::node(&client, Duration::from_millis(args.lease_ms))?;
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(node.run(stopped));
    tokio::signal::ctrl_c().await?;
    stop.send_replace(true);
    working.await??;
    Ok(ExitCode::SUCCESS)
}
