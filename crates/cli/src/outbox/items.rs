//! `onward outbox ls` and `in-doubt`: list the outbox items of campaign runs.

use std::process::ExitCode;

use onward_api::outbox::{
    ListInDoubtItemsQuery, ListOutboxItemsQuery, OutboxItemState, OutboxItemView,
};

use crate::campaign::CampaignRunArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::paging::{ListOutputArgs, ListPage};

/// Length of an idempotency key in characters.
const KEY_WIDTH: usize = 64;

/// List the items of a campaign run: what was sent to which recipient, or why not
///
/// A recipient without an item has not been processed yet, or is a duplicate in the audience.
///
/// Exit codes: 0 the items were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct OutboxListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Only items in this state
    #[arg(long, value_parser = ["waiting", "reserved", "sent", "failed", "skipped", "in-doubt"])]
    state: Option<String>,
    /// Only items for this recipient
    #[arg(long, value_name = "ID")]
    recipient: Option<String>,
    #[command(flatten)]
    list: ListOutputArgs,
}

/// List the items in doubt of all campaign runs: it is unknown whether the provider accepted them
///
/// Items in doubt are not retried automatically. Ask the provider, then settle each one with onward
/// outbox settle.
///
/// Exit codes: 0 the items were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct OutboxInDoubtArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    list: ListOutputArgs,
}

pub(crate) async fn list_outbox_items(args: &OutboxListArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let state: Option<OutboxItemState> = args
        .state
        .as_ref()
        .map(|state| serde_json::from_value(state.as_str().into()))
        .transpose()?;
    let query = ListOutboxItemsQuery {
        run: args.run.run.clone(),
        state,
        recipient: args.recipient.clone(),
        ..ListOutboxItemsQuery::default()
    };
    let page = async |limit, after| {
        let page = onward
            .list_outbox_items(ListOutboxItemsQuery {
                limit: Some(limit),
                after,
                ..query.clone()
            })
            .await?;
        Ok(ListPage {
            items: page.items,
            next: page.next,
        })
    };
    args.list
        .print_pages(&format_heading(), format_item_row, page)
        .await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn list_in_doubt_items(args: &OutboxInDoubtArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let page = async |limit, after| {
        let page = onward
            .list_in_doubt_items(ListInDoubtItemsQuery {
                limit: Some(limit),
                after,
            })
            .await?;
        Ok(ListPage {
            items: page.items,
            next: page.next,
        })
    };
    let heading = format!(
        "{:<48}  {:<KEY_WIDTH$}  {:<28}  {:<27}  detail",
        "item", "key", "to", "since"
    );
    args.list
        .print_pages(&heading, format_in_doubt_row, page)
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn format_heading() -> String {
    format!(
        "{:<48}  {:<20}  {:<28}  {:<8}  {:>5}  {:<27}  detail",
        "item", "recipient", "to", "state", "sends", "since"
    )
}

/// Formats an item in doubt with its idempotency key, by which the provider can find it.
fn format_in_doubt_row(item: &OutboxItemView) -> String {
    let OutboxItemView {
        item: id,
        key,
        to,
        in_doubt_since,
        created_at,
        ..
    } = item;
    let (since, to) = (
        in_doubt_since.as_ref().unwrap_or(created_at),
        console::escape_control_chars(to),
    );
    let detail = console::escape_control_chars(item.error.as_deref().unwrap_or_default());
    format!("{id:<48}  {key:<KEY_WIDTH$}  {to:<28}  {since:<27}  {detail}")
}

fn format_item_row(item: &OutboxItemView) -> String {
    let OutboxItemView {
        item: id,
        recipient,
        to,
        state,
        sends,
        settled_at,
        in_doubt_since,
        created_at,
        ..
    } = item;
    let since = settled_at
        .as_ref()
        .or(in_doubt_since.as_ref())
        .unwrap_or(created_at);
    let details = [
        item.reason.as_deref(),
        item.error.as_deref(),
        item.message_id.as_deref(),
    ];
    let detail = details
        .into_iter()
        .flatten()
        .map(console::escape_control_chars)
        .collect::<Vec<_>>()
        .join(": ");
    let (recipient, to, state) = (
        console::escape_control_chars(recipient),
        console::escape_control_chars(to),
        state.as_str(),
    );
    format!("{id:<48}  {recipient:<20}  {to:<28}  {state:<8}  {sends:>5}  {since:<27}  {detail}")
}
