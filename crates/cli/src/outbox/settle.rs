//! `onward outbox settle`: what became of an item in doubt.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::outbox::{ItemVerdict, Settle};

use crate::access::{Want, WorkArgs};
use crate::campaign::ByArg;
use crate::paint;

/// Say what became of an item in doubt
///
/// sent: the provider has taken it. failed: it was not delivered, and will not be. again: it was not delivered, and is to be. Who said so, and why, stays in the audit trail.
///
/// Exit codes: 0 it is settled, 2 it could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// The item
    #[arg(value_name = "ITEM")]
    item: String,
    /// What became of it
    #[arg(value_parser = ["sent", "failed", "again"])]
    verdict: String,
    /// How that is known: from the provider's log, say
    #[arg(long)]
    why: String,
    /// What the provider calls it
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[command(flatten)]
    by: ByArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let verdict: ItemVerdict = serde_json::from_value(args.verdict.as_str().into())?;
    let (why, message_id, by) = (args.why.clone(), args.message_id.clone(), args.by.by().by);
    let item = onward.settle(&args.item, Settle { verdict, why, message_id, by }).await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&item)?)?;
    } else {
        paint::say(format_args!("{} is {}", item.item, item.standing.as_str()));
    }
    Ok(ExitCode::SUCCESS)
}
