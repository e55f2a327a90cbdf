//! `onward state verify`: is what is stored what can have happened.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_engine::verify::{self, Found, Tally};
use onward_runs::{Accept, RunId};
use serde::Serialize;

use crate::paint::{self, counted};
use crate::progress::Progress;
use crate::store::StoreArgs;

/// Check what is stored: keys, order, contiguity, and that every snapshot is what its log reduces to
///
/// Reads everything and changes nothing.
///
/// Exit codes: 0 all is right, 1 something is wrong and was printed, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this run
    run: Option<RunId>,
    /// Take idempotency keys of contract v1 for right, in logs that were imported
    #[arg(long)]
    accept_v1_keys: bool,
    /// Print one JSON object a finding and one at the end
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verdict {
    ok: bool,
    runs: u64,
    events: u64,
    findings: u64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.store.open_existing().await?;
    let mut findings = 0;
    let mut progress = Progress::new(!args.json);
    let mut report = |found: &Found| -> io::Result<()> {
        findings += 1;
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::to_string(found)?)
        } else {
            writeln!(io::stdout(), "{found}")
        }
    };
    let accept = if args.accept_v1_keys { Accept::V2OrV1 } else { Accept::V2Only };
    let tally = match &args.run {
        Some(run) => verify::run(&*store, run, accept, &mut report).await?,
        None => verify::all(&*store, accept, &mut report, |tally| progress.at(tally.runs, || line(tally))).await?,
    };
    drop(progress);
    let Tally { runs, events } = tally;
    if args.json {
        let verdict = Verdict { ok: findings == 0, runs, events, findings };
        writeln!(io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
    } else {
        let word = if findings == 0 { paint::good("valid").to_string() } else { paint::error("wrong").to_string() };
        let (events, runs) = (counted(events, "event"), counted(runs, "run"));
        paint::say(format_args!("{word}: {events} of {runs}, {}", counted(findings, "finding")));
    }
    Ok(ExitCode::from(u8::from(findings > 0)))
}

/// How far it is.
fn line(tally: Tally) -> String {
    format!("{} runs, {} events", tally.runs, tally.events)
}
