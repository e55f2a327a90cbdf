//! `onward node`: runs the executions of a store until it is stopped. `onward demo` spawns and
//! kills it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::EngineArgs;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::shutdown::ShutdownSignals;

/// Run the executions of a store until Ctrl-C, without an HTTP server
///
/// Any number of processes can work on one Postgres store, and one on a SQLite store; when one
/// dies, another takes over.
///
/// The first SIGTERM or Ctrl-C drains: running tasks get ten seconds to complete, then the node
/// releases its shards. The second exits immediately.
///
/// Exit codes: 0 the node was stopped, 2 it could not start or its store failed, 130 it was stopped
/// twice.
#[derive(clap::Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Lease in milliseconds: how long other nodes wait before they take over from this one
    #[arg(long, default_value_t = 5_000)]
    lease_ms: u64,
}

pub(crate) async fn run_node(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let access = args.connection.open_connection(AccessMode::Create).await?;
    let Some(client) = access.store_client else {
        bail!("a node needs a store: use --store URL instead of --server or --profile")
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
    console::print_message("draining; send the signal again to exit immediately");
    let forced_exit = signals.exit_on_next_signal();
    engine.stop().await?;
    forced_exit.abort();
    Ok(ExitCode::SUCCESS)
}
