//! `onward state events`: the log of a run.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_runs::{RunId, RunSeq};
use onward_store::Page;

use crate::store::StoreArgs;

/// Print the events of a run as JSON Lines, in the order of their sequence
///
/// Exit codes: 0 done, also when there are no events; 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The run
    run: RunId,
    /// Only events after this sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// At most so many events
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.store.open_existing().await?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut after, mut left) = (RunSeq::new(args.after).unwrap_or(RunSeq::MAX), args.limit);
    while left > 0 {
        let events = store.run_events(&args.run, Page { after, limit: left.min(1_000) }).await?;
        let Some(last) = events.last() else { break };
        (after, left) = (last.run_seq, left - events.len());
        for event in &events {
            writeln!(out, "{}", event.to_json())?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
