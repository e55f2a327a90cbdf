//! `onward tasks`: what workers perform, or will.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::task::{TaskInfo, TaskListing};

use crate::access::{Want, WorkArgs};
use crate::paint;

/// Tasks that are asked for at a time.
const PAGE: u32 = 1_000;

/// List tasks that workers perform, and those that wait for a worker
///
/// Tasks of a component that is deployed are performed by the engine itself and are not listed: onward why tells of them.
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
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
        writeln!(
            out,
            "{:<24}  {:<7}  {:>7}  {:<12}  {:<27}  worker",
            "function", "state", "attempt", "execution", "since"
        )?;
    }
    let mut listing = TaskListing::default();
    let mut left = args.limit;
    while left > 0 {
        listing.limit = Some(u32::try_from(left).unwrap_or(PAGE).min(PAGE));
        let page = onward.tasks(listing).await?;
        left -= page.tasks.len().min(left);
        for task in &page.tasks {
            line(args, &mut out, task)?;
        }
        listing = TaskListing { after: page.next, ..TaskListing::default() };
        if listing.after.is_none() {
            break;
        }
    }
    if listing.after.is_some() && !args.json {
        paint::say(format_args!("there may be more than {}: --limit N shows more", args.limit));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(args: &Args, out: &mut impl io::Write, task: &TaskInfo) -> anyhow::Result<()> {
    if args.json {
        writeln!(out, "{}", serde_json::to_string(task)?)?;
        return Ok(());
    }
    let TaskInfo { function, state, attempt, execution, queued_at, worker, .. } = task;
    let worker = paint::plain(worker.as_deref().unwrap_or_default());
    writeln!(out, "{function:<24}  {state:<7}  {attempt:>7}  {:<12}  {queued_at:<27}  {worker}", &execution[..12])?;
    Ok(())
}
