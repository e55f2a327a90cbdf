//! `onward campaign retry`: another run, for those who were not reached.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::{ByArg, RunArg, watch};
use crate::access::{Want, WorkArgs};
use crate::paint;

/// Try a campaign run again that is over: a new run, linked to it, reaches those whom it did not
///
/// There is one such run of each: asked again, it is the same. Whoever was reached is not reached again.
///
/// Exit codes: 0 it is deployed (with --watch: and everybody was reached), 1 with --watch: not everybody, 2 it could not be done.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArg,
    /// Watch it until it is over
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    by: ByArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let deployed = onward.retry_campaign(&args.run.run, args.by.by()).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&deployed)?)?;
    } else {
        writeln!(io::stdout(), "{}", deployed.run)?;
        let people = paint::counted(deployed.items.into(), "recipient");
        let word = if deployed.existed { "was tried again before, for" } else { "is tried again, for" };
        paint::say(format_args!("it {word} {people}; onward campaign watch {}", deployed.run));
    }
    if args.watch { watch::until_over(&onward, &deployed.run, args.json).await } else { Ok(ExitCode::SUCCESS) }
}
