//! `onward campaign pause`, `resume` and `cancel`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::campaign::Control;

use super::{ByArg, RunArg, ls};
use crate::access::{Want, WorkArgs};
use crate::paint;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArg,
    #[command(flatten)]
    by: ByArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, control: Control) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let run = onward.control_campaign(&args.run.run, control, args.by.by()).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&run)?)?;
    } else {
        paint::say(format_args!("{} is {}", run.summary.run, ls::status(&run.summary)));
    }
    Ok(ExitCode::SUCCESS)
}
