//! `onward node`: runs the executions of a store until it is stopped. `onward demo` starts it to kill it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::EngineArgs;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::shutdown::ShutdownSignals;

/// Run the executions of a store until Ctrl-C, without answering over HTTP
///
/// Any number of processes can work on one Postgres store, and one on a SQLite store; another takes over when one is gone.
///
/// The first SIGTERM or Ctrl-C lets tasks under way end for ten seconds, and gives its shards up; the second ends at once.
///
/// Exit codes: 0 it was stopped, 2 it could not work, or its store failed, 130 it was stopped twice.
#[derive(clap::Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// How long others wait before they take over, in milliseconds
    #[arg(long, default_value_t = 5_000)]
    lease_ms: u64,
}

pub(crate) async fn run_node(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let access = args.connection.open_connection(AccessMode::Create).await?;
    let Some(client) = access.store_client else {
        bail!("a node runs the executions of a store: --store URL")
    };
    let mut engine = args
        .engine
        .engine_builder(&client)
        .with_lease(Duration::from_millis(args.lease_ms))
        .open()
        .await?;
    let mut signals = ShutdownSignals::install_handlers()?;
    tokio::select! {
        () = signals.next_signal() => {}
        error = engine.wait_for_failure() => return Err(error.into()),
    }
    console::print_message("stopping; once more to stop at once");
    let again = signals.exit_on_next_signal();
    engine.stop().await?;
    again.abort();
    Ok(ExitCode::SUCCESS)
}
