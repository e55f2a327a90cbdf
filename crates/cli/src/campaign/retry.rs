//! `onward campaign retry`: another run, for those who were not reached.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::{ActorArg, CampaignRunArg, watch};
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Try a campaign run again that is over: a new run, linked to it, reaches those whom it did not
///
/// There is one such run of each: asked again, it is the same. Whoever was reached is not reached again.
///
/// Exit codes: 0 it is deployed (with --watch: and everybody was reached), 1 with --watch: not everybody, 2 it could not be done.
#[derive(clap::Args)]
pub(crate) struct CampaignRetryArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Watch it until it is over
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    actor: ActorArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn retry_campaign_run(args: &CampaignRetryArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let deployed = onward
        .retry_campaign_run(&args.run.run, args.actor.requested_by())
        .await?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&deployed)?)?;
    } else {
        writeln!(io::stdout(), "{}", deployed.run)?;
        let people = console::format_count(deployed.items.into(), "recipient");
        let word = if deployed.existed {
            "was tried again before, for"
        } else {
            "is tried again, for"
        };
        console::print_message(format_args!(
            "it {word} {people}; onward campaign watch {}",
            deployed.run
        ));
    }
    if args.watch {
        watch::watch_run_until_over(&onward, &deployed.run, args.json).await
    } else {
        Ok(ExitCode::SUCCESS)
    }
}
