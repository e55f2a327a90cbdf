//! `onward campaign suppress`: those who want nothing more.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Subcommand;
use onward_api::campaign::ChannelName;
use onward_api::outbox::{Suppress, Suppression, SuppressionListing};

use crate::access::{Want, WorkArgs};
use crate::pages::{ListArgs, Page};
use crate::paint;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Reach somebody no more
    Add(AddArgs),
    /// Reach somebody again
    Rm(RmArgs),
    /// List those who want nothing more
    Ls(LsArgs),
}

/// By which way.
#[derive(clap::Args)]
struct ChannelArg {
    /// The channel: email, voice or social
    #[arg(long, default_value = "email", value_parser = ["email", "voice", "social"])]
    channel: String,
}

impl ChannelArg {
    fn channel(&self) -> anyhow::Result<ChannelName> {
        Ok(serde_json::from_value(self.channel.as_str().into())?)
    }
}

#[derive(clap::Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArg,
    /// Where they are reached
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
    /// Why
    #[arg(long, default_value = "asked for")]
    reason: String,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArg,
    /// Where they are reached
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArg,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Add(args) => add(args).await?,
        Command::Rm(args) => rm(args).await?,
        Command::Ls(args) => ls(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(args: &AddArgs) -> anyhow::Result<()> {
    let (onward, channel) = (args.work.open(Want::Create).await?, args.channel.channel()?);
    for address in &args.addresses {
        let suppress = Suppress { channel, address: address.clone(), reason: args.reason.clone() };
        let suppression = onward.suppress(suppress).await?;
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::to_string(&suppression)?)?;
        } else {
            paint::say(format_args!("{} is left alone", paint::plain(&suppression.address)));
        }
    }
    Ok(())
}

async fn rm(args: &RmArgs) -> anyhow::Result<()> {
    let (onward, channel) = (args.work.open(Want::Write).await?, args.channel.channel()?);
    for address in &args.addresses {
        onward.unsuppress(channel, address).await?;
        paint::say(format_args!("{} is reached again", paint::plain(address)));
    }
    Ok(())
}

async fn ls(args: &LsArgs) -> anyhow::Result<()> {
    let (onward, channel) = (args.work.open(Want::Read).await?, args.channel.channel()?);
    let heading = format!("{:<40}  {:<27}  reason", "address", "since");
    let line = |it: &Suppression| {
        format!("{:<40}  {:<27}  {}", paint::plain(&it.address), it.created_at, paint::plain(&it.reason))
    };
    let page = async |limit, after| {
        let page = onward.suppressions(SuppressionListing { channel, limit: Some(limit), after }).await?;
        Ok(Page { items: page.suppressions, next: page.next })
    };
    args.list.print(&heading, line, page).await
}
