//! `onward state snapshot`: where a run stands.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use onward_runs::{RunId, RunSnapshot};
use onward_store::tables::Snapshot;
use onward_store::{Error, Field as _, Invalid, Key, Records as _, RunStateStore as _, Store};

use crate::paint;
use crate::store::StoreArgs;

/// Print the snapshot of a run as JSON
///
/// The stored snapshot may be up to a second behind the log; --project reduces the log itself.
///
/// Exit codes: 0 done, 1 there is no such run or no snapshot of it yet, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The run
    run: RunId,
    /// Reduce the log now instead of reading the stored snapshot
    #[arg(long)]
    project: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.store.open_existing().await?;
    let snapshot = if args.project { projected(&*store, &args.run).await? } else { kept(&*store, &args.run).await? };
    let Some(snapshot) = snapshot else {
        return Ok(ExitCode::from(1));
    };
    let stdout = io::stdout();
    let json =
        if stdout.is_terminal() { serde_json::to_string_pretty(&snapshot)? } else { serde_json::to_string(&snapshot)? };
    writeln!(&stdout, "{json}")?;
    Ok(ExitCode::SUCCESS)
}

async fn projected(store: &dyn Store, run: &RunId) -> anyhow::Result<Option<RunSnapshot>> {
    match store.project_snapshot(run).await {
        Err(Error::Invalid(Invalid::NoSuchRun(_))) => {
            paint::say(format_args!("there is no run {run} in the store"));
            Ok(None)
        }
        other => Ok(Some(other?)),
    }
}

async fn kept(store: &dyn Store, run: &RunId) -> anyhow::Result<Option<RunSnapshot>> {
    let row: Option<(Snapshot, u64)> = store.get(Key(vec![run.to_value()])).await?;
    let Some((row, _)) = row else {
        match store.run(run).await? {
            None => paint::say(format_args!("there is no run {run} in the store")),
            Some(_) => paint::say(format_args!("run {run} has no snapshot yet; --project makes one from the log")),
        }
        return Ok(None);
    };
    match &*row.condition {
        "STALE" => paint::say("stale: events are missing from the log behind this snapshot"),
        "INCONSISTENT" => paint::say("inconsistent: the log holds events that were not allowed; they are ignored"),
        _ => {}
    }
    Ok(Some(row.decode()?))
}
