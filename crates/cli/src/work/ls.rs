//! `onward ls`: the executions of a store.

use std::process::ExitCode;

use onward_api::execution::{Listing, Order, State, Summary};

use crate::access::{Want, WorkArgs};
use crate::pages::{ListArgs, Page};
use crate::paint;

/// List executions, the last that was started first
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
    /// The first that was started first
    #[arg(long)]
    oldest: bool,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let heading = format!("{:<12}  {:<10}  {:<24}  {:<27}  key", "execution", "state", "function", "started");
    let state = |name: &String| State::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(name));
    let asked = Listing {
        state: args.state.as_ref().and_then(state),
        function: args.function.clone(),
        order: if args.oldest { Order::Oldest } else { Order::Newest },
        ..Listing::default()
    };
    let page = async |limit, after| {
        let page = onward.executions(Listing { limit: Some(limit), after, ..asked.clone() }).await?;
        Ok(Page { items: page.executions, next: page.next })
    };
    args.list.print(&heading, line, page).await?;
    Ok(ExitCode::SUCCESS)
}

fn line(Summary { execution, function, state, key, created_at }: &Summary) -> String {
    let (short, key) = (&execution[..12], paint::plain(key.as_deref().unwrap_or_default()));
    format!("{short}  {state:<10}  {function:<24}  {created_at:<27}  {key}")
}
