//! `onward campaign retry`: creates a run for the recipients that an ended run did not reach.

use std::io::Write as _;
use std::process::ExitCode;

use super::{ActorArg, CampaignRunArg, watch};
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console::{self, OutputFormat};

/// Retry an ended campaign run: a new, linked run sends to the recipients it did not reach
///
/// A run has at most one retry run: repeating the command prints the same one. Recipients that were
/// reached are not sent to again.
///
/// Exit codes: 0 the retry run is deployed (with --watch: and all recipients were reached), 1 with
/// --watch: not all recipients were reached, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct CampaignRetryArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Watch the run until it has ended
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
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&deployed)?
        )?;
    } else {
        writeln!(console::text_output(), "{}", deployed.run)?;
        let recipients = console::format_count(deployed.items.into(), "recipient");
        let outcome = if deployed.existed {
            "already retried"
        } else {
            "retry deployed"
        };
        console::print_message(format_args!(
            "{outcome}: {recipients}; onward campaign watch {}",
            deployed.run
        ));
    }
    if args.watch {
        watch::watch_run_until_ended(
            &onward,
            &deployed.run,
            OutputFormat::from_json_flag(args.json),
        )
        .await
    } else {
        Ok(ExitCode::SUCCESS)
    }
}
