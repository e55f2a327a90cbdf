//! `onward ls`: the executions of a store.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::execution::{Listing, State, Summary};

use crate::access::{Want, WorkArgs};
use crate::paint;

/// Executions that are asked for at a time.
const PAGE: u32 = 1_000;

/// List executions, oldest first
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// Only executions in this state
    #[arg(long, ignore_case = true, value_parser = ["Running", "Blocked", "Cancelling", "Completed", "Failed", "Cancelled"])]
    state: Option<String>,
    /// Only executions of this workflow
    #[arg(long)]
    function: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(out, "{:<12}  {:<10}  {:<24}  {:<27}  key", "execution", "state", "function", "started")?;
    }
    let state = |name: &String| State::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(name));
    let mut listing =
        Listing { state: args.state.as_ref().and_then(state), function: args.function.clone(), ..Listing::default() };
    let mut left = args.limit;
    while left > 0 {
        listing.limit = Some(u32::try_from(left).unwrap_or(PAGE).min(PAGE));
        let page = onward.executions(listing.clone()).await?;
        left -= page.executions.len().min(left);
        for row in &page.executions {
            line(args, &mut out, row)?;
        }
        listing.after = page.next;
        if listing.after.is_none() {
            break;
        }
    }
    if listing.after.is_some() && !args.json {
        paint::say(format_args!("there may be more than {}: --limit N shows more", args.limit));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(args: &Args, out: &mut impl io::Write, row: &Summary) -> anyhow::Result<()> {
    if args.json {
        writeln!(out, "{}", serde_json::to_string(row)?)?;
        return Ok(());
    }
    let Summary { execution, function, state, key, created_at } = row;
    let (short, key) = (&execution[..12], paint::plain(key.as_deref().unwrap_or_default()));
    writeln!(out, "{short}  {state:<10}  {function:<24}  {created_at:<27}  {key}")?;
    Ok(())
}
