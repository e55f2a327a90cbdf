//! `onward campaign suppress`: adds, removes and lists addresses on the suppression list.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use futures_util::stream::{self, StreamExt as _};
use onward_api::campaign::ChannelName;
use onward_api::outbox::{
    AddSuppressionRequest, ListSuppressionsQuery, RemoveSuppressionResponse, SuppressionEntry,
};
use onward_api::problem::{Code, Problem};
use serde::Serialize;

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::paging::{ListOutputArgs, ListPage};
use crate::{console, names_file};

/// Maximum number of concurrent requests to a server or store.
const CONCURRENT_REQUESTS: usize = 16;

#[derive(Subcommand)]
pub(crate) enum SuppressSubcommand {
    /// Add addresses to the suppression list: campaigns no longer send to them
    ///
    /// Exit codes: 0 all addresses are suppressed, 2 some are not, for example because they are not
    /// valid addresses.
    Add(SuppressAddArgs),
    /// Remove addresses from the suppression list
    ///
    /// Exit codes: 0 none of the addresses is suppressed any more, 2 some could not be removed, for
    /// example because they are not valid addresses.
    Rm(SuppressRemoveArgs),
    /// List the addresses on the suppression list
    ///
    /// Exit codes: 0 the addresses were listed, 2 the command failed.
    Ls(SuppressListArgs),
}

/// The channel that a suppression applies to.
#[derive(clap::Args)]
struct SuppressChannelArg {
    /// Channel of the addresses
    #[arg(long, default_value = "email", value_parser = ["email", "voice", "social"])]
    channel: String,
}

impl SuppressChannelArg {
    fn parse_channel(&self) -> anyhow::Result<ChannelName> {
        Ok(serde_json::from_value(self.channel.as_str().into())?)
    }
}

/// The addresses that a command applies to.
#[derive(clap::Args)]
struct SuppressAddressArgs {
    /// Addresses to process
    #[arg(value_name = "ADDRESS", required_unless_present = "from")]
    addresses: Vec<String>,
    /// Read addresses from a file, one per line; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "addresses")]
    from: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl SuppressAddressArgs {
    /// Calls `act` for each address, several at a time, and prints the results in the order of the
    /// addresses. An invalid address is reported and does not stop the others.
    async fn apply_to_each<T: Serialize>(
        &self,
        act: impl AsyncFn(String) -> Result<T, Problem>,
        describe: impl Fn(&T) -> String,
    ) -> anyhow::Result<ExitCode> {
        let addresses = match &self.from {
            Some(file) => names_file::read_names_file(file)?,
            None => self.addresses.clone(),
        };
        let mut outcomes = stream::iter(addresses)
            .map(|address| act(address))
            .buffered(CONCURRENT_REQUESTS);
        let mut all_accepted = true;
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(it) if self.json => {
                    writeln!(console::json_output(), "{}", serde_json::to_string(&it)?)?
                }
                Ok(it) => console::print_message(describe(&it)),
                Err(problem) if problem.code == Code::Unprocessable => {
                    all_accepted = false;
                    console::print_message(format_args!(
                        "{}: {}",
                        console::style_error("error"),
                        console::escape_control_chars(&problem.detail)
                    ));
                }
                Err(problem) => return Err(problem.into()),
            }
        }
        Ok(if all_accepted {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(2)
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct SuppressAddArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    channel: SuppressChannelArg,
    #[command(flatten)]
    addresses: SuppressAddressArgs,
    /// Reason to record with the suppression
    #[arg(long, default_value = "requested")]
    reason: String,
}

#[derive(clap::Args)]
pub(crate) struct SuppressRemoveArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    channel: SuppressChannelArg,
    #[command(flatten)]
    addresses: SuppressAddressArgs,
}

#[derive(clap::Args)]
pub(crate) struct SuppressListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    channel: SuppressChannelArg,
    #[command(flatten)]
    list: ListOutputArgs,
}

pub(crate) async fn run_suppress_command(command: &SuppressSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        SuppressSubcommand::Add(args) => add_suppressions(args).await,
        SuppressSubcommand::Rm(args) => remove_suppressions(args).await,
        SuppressSubcommand::Ls(args) => list_suppressions(args).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn add_suppressions(args: &SuppressAddArgs) -> anyhow::Result<ExitCode> {
    let (onward, channel) = (
        args.connection.open_connection(AccessMode::Create).await?,
        args.channel.parse_channel()?,
    );
    let suppress = async |address| {
        onward
            .add_suppression(AddSuppressionRequest {
                channel,
                address,
                reason: args.reason.clone(),
            })
            .await
    };
    let describe = |it: &SuppressionEntry| {
        format!(
            "{} is suppressed",
            console::escape_control_chars(&it.address)
        )
    };
    args.addresses.apply_to_each(suppress, describe).await
}

async fn remove_suppressions(args: &SuppressRemoveArgs) -> anyhow::Result<ExitCode> {
    let (onward, channel) = (
        args.connection.open_connection(AccessMode::Write).await?,
        args.channel.parse_channel()?,
    );
    let unsuppress = async |address: String| onward.remove_suppression(channel, &address).await;
    let describe = |it: &RemoveSuppressionResponse| {
        let outcome = if it.was_listed {
            "is no longer suppressed"
        } else {
            "was not suppressed"
        };
        format!("{} {outcome}", console::escape_control_chars(&it.address))
    };
    args.addresses.apply_to_each(unsuppress, describe).await
}

async fn list_suppressions(args: &SuppressListArgs) -> anyhow::Result<()> {
    let (onward, channel) = (
        args.connection.open_connection(AccessMode::Read).await?,
        args.channel.parse_channel()?,
    );
    let heading = format!("{:<40}  {:<27}  reason", "address", "since");
    let line = |it: &SuppressionEntry| {
        format!(
            "{:<40}  {:<27}  {}",
            console::escape_control_chars(&it.address),
            it.created_at,
            console::escape_control_chars(&it.reason)
        )
    };
    let page = async |limit, after| {
        let page = onward
            .list_suppressions(ListSuppressionsQuery {
                channel,
                limit: Some(limit),
                after,
            })
            .await?;
        Ok(ListPage {
            items: page.suppressions,
            next: page.next,
        })
    };
    args.list.print_pages(&heading, line, page).await
}
