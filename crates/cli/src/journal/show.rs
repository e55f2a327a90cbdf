//! `onward journal show`: prints the journal of an execution in the format that `onward journal
//! check` reads.

use std::io::Write as _;
use std::process::ExitCode;

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::execution::ExecutionArg;

/// Print the journal of an execution as JSON Lines, one event per line
///
/// `onward journal check -` reads this output.
///
/// Exit codes: 0 the journal was printed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct JournalShowArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print one JSON object per line; this is the only format, so the option changes nothing
    #[arg(long)]
    json: bool,
}

pub(crate) async fn show_journal(args: &JournalShowArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let lines = onward
        .get_execution_journal(&args.execution.id, 0, 0)
        .await?;
    console::json_output().write_all(lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
