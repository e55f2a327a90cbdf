//! `onward node`: runs the executions of a store until it is stopped. `onward demo` spawns and
//! kills it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use onward_engine::node::GuestRuntimes;

use super::EngineArgs;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::shutdown::{self, ShutdownSignals};

/// How long running tasks may take when the node stops: the default of the engine.
const NODE_DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

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

pub(crate) async fn run_node(args: &NodeArgs, runtimes: GuestRuntimes) -> anyhow::Result<ExitCode> {
    let access = args.connection.open_connection(AccessMode::Create).await?;
    let Some(client) = access.store_client else {
        bail!("a node needs a store: use --store URL instead of --server or --profile")
    };
    let mut engine = args
        .engine
        .engine_builder(&client)
        .with_lease(Duration::from_millis(args.lease_ms))
        .with_guest_runtimes(runtimes)
        .open()
        .await?;
    let mut signals = ShutdownSignals::install_handlers()?;
    tokio::select! {
        () = signals.next_signal() => {}
        error = engine.wait_for_failure() => return Err(error.into()),
    }
    console::print_message("draining; send the signal again to exit immediately");
    signals.exit_on_next_signal(NODE_DRAIN_TIMEOUT)?;
    shutdown::stop_engine(engine, NODE_DRAIN_TIMEOUT).await?;
    Ok(ExitCode::SUCCESS)
}
