//! `onward outbox ls` and `in-doubt`: what was sent to whom, and what nobody knows of.

use std::process::ExitCode;

use onward_api::outbox::{DoubtListing, ItemStanding, OutboxItem, OutboxListing};

use crate::access::{Want, WorkArgs};
use crate::campaign::RunArg;
use crate::pages::{ListArgs, Page};
use crate::paint;

/// Characters of a key.
const KEY: usize = 64;

/// List items of a campaign run: what was sent to whom, or why not
///
/// Somebody of whom nothing is listed was not reached yet, or is named twice.
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArg,
    /// Only items that stand there
    #[arg(long, value_parser = ["waiting", "held", "served", "failed", "skipped", "in-doubt"])]
    standing: Option<String>,
    /// Only items for this recipient
    #[arg(long, value_name = "ID")]
    recipient: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// List items in doubt, of all campaign runs: nobody knows whether the provider has taken them
///
/// They are not sent again by themselves. Ask the provider, and say with onward outbox settle what became of each.
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct InDoubtArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn ls(args: &LsArgs) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let standing: Option<ItemStanding> =
        args.standing.as_ref().map(|standing| serde_json::from_value(standing.as_str().into())).transpose()?;
    let asked = OutboxListing {
        run: args.run.run.clone(),
        standing,
        recipient: args.recipient.clone(),
        ..OutboxListing::default()
    };
    let page = async |limit, after| {
        let page = onward.outbox(OutboxListing { limit: Some(limit), after, ..asked.clone() }).await?;
        Ok(Page { items: page.items, next: page.next })
    };
    args.list.print(&heading(), line, page).await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn in_doubt(args: &InDoubtArgs) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let page = async |limit, after| {
        let page = onward.outbox_in_doubt(DoubtListing { limit: Some(limit), after }).await?;
        Ok(Page { items: page.items, next: page.next })
    };
    let heading = format!("{:<48}  {:<KEY$}  {:<28}  {:<27}  what", "item", "key", "to", "since");
    args.list.print(&heading, doubtful, page).await?;
    Ok(ExitCode::SUCCESS)
}

fn heading() -> String {
    format!("{:<48}  {:<20}  {:<28}  {:<8}  {:<27}  what", "item", "recipient", "to", "standing", "since")
}

/// An item in doubt, with what its provider knows it by.
fn doubtful(item: &OutboxItem) -> String {
    let OutboxItem { item: id, key, to, doubt_since, created_at, .. } = item;
    let (since, to) = (doubt_since.as_ref().unwrap_or(created_at), paint::plain(to));
    let what = paint::plain(item.error.as_deref().unwrap_or_default());
    format!("{id:<48}  {key:<KEY$}  {to:<28}  {since:<27}  {what}")
}

fn line(item: &OutboxItem) -> String {
    let OutboxItem { item: id, recipient, to, standing, settled_at, doubt_since, created_at, .. } = item;
    let since = settled_at.as_ref().or(doubt_since.as_ref()).unwrap_or(created_at);
    let words = [item.reason.as_deref(), item.error.as_deref(), item.message_id.as_deref()];
    let what = words.into_iter().flatten().map(paint::plain).collect::<Vec<_>>().join(": ");
    let (recipient, to, standing) = (paint::plain(recipient), paint::plain(to), standing.as_str());
    format!("{id:<48}  {recipient:<20}  {to:<28}  {standing:<8}  {since:<27}  {what}")
}
