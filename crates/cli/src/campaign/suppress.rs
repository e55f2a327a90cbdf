//! `onward campaign suppress`: those who want nothing more.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use futures_util::stream::{self, StreamExt as _};
use onward_api::campaign::ChannelName;
use onward_api::outbox::{Suppress, Suppression, SuppressionListing, Unsuppressed};
use onward_api::problem::{Code, Problem};
use serde::Serialize;

use crate::access::{Want, WorkArgs};
use crate::pages::{ListArgs, Page};
use crate::{names, paint};

/// Addresses that are told to a server or a store at a time.
const TOGETHER: usize = 16;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Reach somebody no more
    ///
    /// Exit codes: 0 they are left alone, 2 some are not: what was said is no address, say.
    Add(AddArgs),
    /// Reach somebody again
    ///
    /// Exit codes: 0 they can be reached, 2 some cannot: what was said is no address, say.
    Rm(RmArgs),
    /// List those who want nothing more
    ///
    /// Exit codes: 0 they were listed, 2 they could not be.
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

/// Whom.
#[derive(clap::Args)]
struct Addresses {
    /// Where they are reached
    #[arg(value_name = "ADDRESS", required_unless_present = "from")]
    addresses: Vec<String>,
    /// Addresses from a file, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "addresses")]
    from: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Addresses {
    /// Does something for each of them, several at a time, and tells of each what came of it, in their order. One that is no
    /// address does not keep back the next.
    async fn each<T: Serialize>(
        &self,
        act: impl AsyncFn(String) -> Result<T, Problem>,
        words: impl Fn(&T) -> String,
    ) -> anyhow::Result<ExitCode> {
        let addresses = match &self.from {
            Some(file) => names::read(file)?,
            None => self.addresses.clone(),
        };
        let mut done = stream::iter(addresses).map(|address| act(address)).buffered(TOGETHER);
        let mut is_whole = true;
        while let Some(outcome) = done.next().await {
            match outcome {
                Ok(it) if self.json => writeln!(io::stdout(), "{}", serde_json::to_string(&it)?)?,
                Ok(it) => paint::say(words(&it)),
                Err(problem) if problem.code == Code::Unprocessable => {
                    is_whole = false;
                    paint::say(format_args!("{}: {}", paint::error("error"), paint::plain(&problem.detail)));
                }
                Err(problem) => return Err(problem.into()),
            }
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(2) })
    }
}

#[derive(clap::Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArg,
    #[command(flatten)]
    addresses: Addresses,
    /// Why
    #[arg(long, default_value = "asked for")]
    reason: String,
}

#[derive(clap::Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArg,
    #[command(flatten)]
    addresses: Addresses,
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
        Command::Add(args) => add(args).await,
        Command::Rm(args) => rm(args).await,
        Command::Ls(args) => ls(args).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let (onward, channel) = (args.work.open(Want::Create).await?, args.channel.channel()?);
    let suppress = async |address| onward.suppress(Suppress { channel, address, reason: args.reason.clone() }).await;
    let words = |it: &Suppression| format!("{} is left alone", paint::plain(&it.address));
    args.addresses.each(suppress, words).await
}

async fn rm(args: &RmArgs) -> anyhow::Result<ExitCode> {
    let (onward, channel) = (args.work.open(Want::Write).await?, args.channel.channel()?);
    let unsuppress = async |address: String| onward.unsuppress(channel, &address).await;
    let words = |it: &Unsuppressed| {
        let was = if it.was_listed { "is reached again" } else { "was not on the list" };
        format!("{} {was}", paint::plain(&it.address))
    };
    args.addresses.each(unsuppress, words).await
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
