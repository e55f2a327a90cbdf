//! `onward state snapshot`: prints the state of a run.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use onward_api::problem::Code;
use onward_api::run::SnapshotSource;
use onward_runs::RunId;

use crate::connection::{AccessMode, ConnectionArgs};
use crate::console;

/// Print the snapshot of a run as JSON
///
/// The stored snapshot may be up to a second behind the log; --from-log reduces the log itself.
///
/// Exit codes: 0 the snapshot was printed, 1 the run does not exist or has no snapshot yet, 2 the
/// command failed.
#[derive(clap::Args)]
pub(crate) struct StateSnapshotArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Id of the run
    run: RunId,
    /// Reduce the log now instead of reading the stored snapshot
    #[arg(long)]
    from_log: bool,
}

pub(crate) async fn print_snapshot(args: &StateSnapshotArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let source = if args.from_log {
        SnapshotSource::Log
    } else {
        SnapshotSource::Stored
    };
    let found = match onward.get_run_snapshot(&args.run, source).await {
        Err(problem) if matches!(problem.code, Code::NoRun | Code::NoSnapshot) => {
            console::print_message(&problem.detail);
            return Ok(ExitCode::from(1));
        }
        found => found?,
    };
    match &*found.condition {
        "STALE" => console::print_message("stale: events are missing in the log of this snapshot"),
        "INCONSISTENT" => console::print_message(
            "inconsistent: the log contains events that the transition rules forbid; they are ignored",
        ),
        _ => {}
    }
    let mut out = console::json_output();
    if io::stdout().is_terminal() {
        let document: serde_json::Value = serde_json::from_str(found.snapshot.as_str())?;
        writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    } else {
        writeln!(out, "{}", found.snapshot.as_str())?;
    }
    Ok(ExitCode::SUCCESS)
}
