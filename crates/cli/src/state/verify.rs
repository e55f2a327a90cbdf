//! `onward state verify`: is what is stored what can have happened.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::run::{Heard, Verified, Wrong};
use onward_runs::RunId;

use crate::access::{PlaceArgs, Want};
use crate::paint::{self, counted};
use crate::progress::Progress;

/// Check what is stored: keys, order, contiguity, and that every snapshot is what its log reduces to
///
/// Reads everything and changes nothing.
///
/// Exit codes: 0 all is right, 1 something is wrong and was printed, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Only this run
    run: Option<RunId>,
    /// Take idempotency keys of contract v1 for right, in logs that were imported
    #[arg(long)]
    accept_v1_keys: bool,
    /// Print one JSON object a finding and one at the end
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.place.open(Want::Read).await?;
    let mut progress = Progress::new(!args.json);
    let mut written = Ok(());
    let mut hear = |heard| match heard {
        Heard::Found(wrong) if written.is_ok() => written = tell(args, &wrong),
        Heard::Found(_) => {}
        Heard::Looked { runs, events } => progress.at(runs, || format!("{runs} runs, {events} events")),
    };
    let verified = onward.verify(args.run.as_deref(), args.accept_v1_keys, &mut hear).await?;
    drop(progress);
    written?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&verified)?)?;
    } else {
        let Verified { ok, runs, events, findings } = verified;
        let word = if ok { paint::good("valid").to_string() } else { paint::error("wrong").to_string() };
        let (events, runs) = (counted(events, "event"), counted(runs, "run"));
        paint::say(format_args!("{word}: {events} of {runs}, {}", counted(findings, "finding")));
    }
    Ok(ExitCode::from(u8::from(!verified.ok)))
}

fn tell(args: &Args, wrong: &Wrong) -> io::Result<()> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(wrong)?)
    } else {
        writeln!(io::stdout(), "{wrong}")
    }
}
