//! `onward outbox settle`: records the outcome of items in doubt.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use onward_api::OnwardApi;
use onward_api::outbox::{
    ItemResolution, ListOutboxItemsQuery, OutboxItemState, SettleItemRequest, SettleItemsRequest,
    SettleItemsResponse, UnsettledItem,
};
use onward_api::problem::Problem;

use crate::campaign::ActorArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::{console, names_file};

/// Maximum number of items per request.
const SETTLE_BATCH_MAX: usize = 1_000;

/// Settle items in doubt: record whether the provider accepted them
///
/// sent: the provider accepted them. failed: they were not delivered and will not be. resend: they
/// were not delivered and are sent again. The audit trail records the name of the requester and the
/// reason.
///
/// Give the items, a file of items, or a campaign run to settle all of its items in doubt. Items of
/// the same job are settled together.
///
/// Exit codes: 0 all items are settled, 2 some could not be.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct OutboxSettleArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Ids of the items
    #[arg(value_name = "ITEM", required_unless_present_any = ["run", "items_from"])]
    items: Vec<String>,
    /// Outcome of the items
    #[arg(value_name = "OUTCOME", value_parser = ["sent", "failed", "resend"], required = true)]
    resolution: String,
    /// Settle all items in doubt of this campaign run
    #[arg(long, value_name = "RUN", conflicts_with_all = ["items", "items_from"])]
    run: Option<String>,
    /// Read items from a file, one per line; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "items")]
    items_from: Option<PathBuf>,
    /// How the outcome is known, for example from the provider's log; recorded in the audit trail
    #[arg(long)]
    reason: String,
    /// Message id of the provider; only for a single item with outcome sent
    #[arg(long, value_name = "ID", value_parser = parse_one_line)]
    message_id: Option<String>,
    #[command(flatten)]
    actor: ActorArg,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn settle_items(args: &OutboxSettleArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let resolution: ItemResolution = serde_json::from_value(args.resolution.as_str().into())?;
    let (reason, by) = (args.reason.clone(), args.actor.requested_by().by);
    let batches = match (&args.run, &args.items_from) {
        (Some(run), _) => read_in_doubt_batches(&*onward, run).await?,
        (None, Some(file)) => split_into_batches(&names_file::read_names_file(file)?),
        (None, None) => split_into_batches(&args.items),
    };
    anyhow::ensure!(
        args.message_id.is_none() || resolution == ItemResolution::Sent,
        "--message-id requires the outcome sent"
    );
    if let (Some(message_id), [items]) = (&args.message_id, batches.as_slice())
        && let [item] = items.as_slice()
    {
        let settle = SettleItemRequest {
            resolution,
            reason,
            message_id: Some(message_id.clone()),
            by,
        };
        let (settled, rejected) = match onward.settle_item(item, settle).await {
            Ok(settled) => (vec![settled], Vec::new()),
            Err(Problem { code, detail, .. }) => (
                Vec::new(),
                vec![UnsettledItem {
                    item: item.clone(),
                    code,
                    detail,
                }],
            ),
        };
        let settlement = SettleItemsResponse { settled, rejected };
        print_settlement(args, &settlement)?;
        return Ok(exit_code_for(settlement.rejected.len()));
    }
    anyhow::ensure!(
        args.message_id.is_none(),
        "--message-id requires exactly one item"
    );
    if let (Some(run), []) = (&args.run, batches.as_slice()) {
        console::print_message(format_args!("run {run} has no items in doubt"));
    }
    let mut rejected_count = 0;
    for items in batches {
        let settle = SettleItemsRequest {
            items,
            resolution,
            reason: reason.clone(),
            by: by.clone(),
        };
        let settlement = onward.settle_items(settle).await?;
        rejected_count += settlement.rejected.len();
        print_settlement(args, &settlement)?;
    }
    Ok(exit_code_for(rejected_count))
}

/// Parses a single line without control characters: it is later printed unescaped.
fn parse_one_line(text: &str) -> Result<String, OneLineError> {
    if text.is_empty() {
        Err(OneLineError::Empty)
    } else if console::escape_control_chars(text) != text {
        Err(OneLineError::ControlCharacter)
    } else {
        Ok(text.to_owned())
    }
}

/// Why the value of an option is not a single line of text.
#[derive(Debug, thiserror::Error)]
enum OneLineError {
    #[error("must not be empty")]
    Empty,
    #[error("must be one line of text without control characters")]
    ControlCharacter,
}

fn exit_code_for(rejected_count: usize) -> ExitCode {
    if rejected_count == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(crate::EXIT_COMMAND_FAILED)
    }
}

fn print_settlement(
    args: &OutboxSettleArgs,
    settlement: &SettleItemsResponse,
) -> anyhow::Result<()> {
    let mut out = console::output(args.json);
    for item in &settlement.settled {
        match args.json {
            true => writeln!(out, "{}", serde_json::to_string(item)?)?,
            false => writeln!(out, "{} is {}", item.item, item.state.as_str())?,
        }
    }
    for rejected in &settlement.rejected {
        match args.json {
            true => writeln!(out, "{}", serde_json::to_string(rejected)?)?,
            false => super::print_refusal(&rejected.item, &rejected.detail),
        }
    }
    Ok(())
}

/// Returns all items in doubt of a campaign run in batches; the items of one job stay together.
async fn read_in_doubt_batches(
    onward: &dyn OnwardApi,
    run: &str,
) -> anyhow::Result<Vec<Vec<String>>> {
    let (mut jobs, mut after): (BTreeMap<String, Vec<String>>, _) = (BTreeMap::new(), None);
    loop {
        let query = ListOutboxItemsQuery {
            run: run.to_owned(),
            state: Some(OutboxItemState::InDoubt),
            ..Default::default()
        };
        let page = onward
            .list_outbox_items(ListOutboxItemsQuery {
                limit: Some(1_000),
                after,
                ..query
            })
            .await?;
        for item in page.items {
            jobs.entry(item.job).or_default().push(item.item);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut batches: Vec<Vec<String>> = Vec::new();
    for items in jobs.into_values() {
        match batches.last_mut() {
            Some(batch) if batch.len() + items.len() <= SETTLE_BATCH_MAX => batch.extend(items),
            _ => batches.push(items),
        }
    }
    Ok(batches)
}

fn split_into_batches(items: &[String]) -> Vec<Vec<String>> {
    items
        .chunks(SETTLE_BATCH_MAX)
        .map(<[String]>::to_vec)
        .collect()
}
