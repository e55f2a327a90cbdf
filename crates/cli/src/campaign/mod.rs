//! `onward campaign`: check, preview, deploy, watch, pause, resume, cancel and retry campaigns, and
//! manage the suppression list.

mod check;
mod control;
mod deploy;
mod local_campaign;
mod ls;
mod preview;
mod progress_bar;
mod retry;
mod show;
mod stall_detector;
mod suppress;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use onward_api::campaign::OperatorActionRequest;

use crate::runtimes::block_on;

#[derive(Subcommand)]
pub(crate) enum CampaignSubcommand {
    Check(check::CampaignCheckArgs),
    Preview(preview::CampaignPreviewArgs),
    Deploy(deploy::CampaignDeployArgs),
    Ls(ls::CampaignListArgs),
    Show(show::CampaignShowArgs),
    Watch(watch::CampaignWatchArgs),
    /// Pause a campaign run: start no new sends until it is resumed; sends in progress are settled
    ///
    /// Exit codes: 0 the run is paused, 2 the command failed, for example because the run has
    /// ended.
    Pause(control::CampaignControlArgs),
    /// Resume a paused campaign run
    ///
    /// Exit codes: 0 the run is resumed, 2 the command failed, for example because the run has
    /// ended.
    Resume(control::CampaignControlArgs),
    /// Cancel a campaign run: start no new sends and mark the remaining recipients as skipped
    ///
    /// Exit codes: 0 the run is cancelled, 2 the command failed, for example because the run has
    /// ended.
    Cancel(control::CampaignControlArgs),
    Retry(retry::CampaignRetryArgs),
    /// Manage the suppression list: addresses that no campaign sends to
    ///
    /// Exit codes: 0 all addresses were processed, 2 the command failed for all or some of them.
    #[command(subcommand)]
    Suppress(suppress::SuppressSubcommand),
}

pub(crate) fn run_campaign_command(command: &CampaignSubcommand) -> anyhow::Result<ExitCode> {
    use onward_api::campaign::CampaignControl;
    match command {
        CampaignSubcommand::Check(args) => block_on(check::check_campaign(args)),
        CampaignSubcommand::Preview(args) => block_on(preview::preview_campaign(args)),
        CampaignSubcommand::Deploy(args) => block_on(deploy::deploy_campaign(args)),
        CampaignSubcommand::Ls(args) => block_on(ls::list_campaign_runs(args)),
        CampaignSubcommand::Show(args) => block_on(show::show_campaign_run(args)),
        CampaignSubcommand::Watch(args) => block_on(watch::watch_campaign(args)),
        CampaignSubcommand::Pause(args) => {
            block_on(control::control_campaign_run(args, CampaignControl::Paused))
        }
        CampaignSubcommand::Resume(args) => {
            block_on(control::control_campaign_run(args, CampaignControl::Active))
        }
        CampaignSubcommand::Cancel(args) => block_on(control::control_campaign_run(
            args,
            CampaignControl::Cancelled,
        )),
        CampaignSubcommand::Retry(args) => block_on(retry::retry_campaign_run(args)),
        CampaignSubcommand::Suppress(command) => block_on(suppress::run_suppress_command(command)),
    }
}

/// The campaign run that a command applies to.
#[derive(clap::Args)]
pub(crate) struct CampaignRunArg {
    /// Campaign run: its id or an unambiguous prefix
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
}

/// The person who requests an operator action.
#[derive(clap::Args)]
pub(crate) struct ActorArg {
    /// Name of the requester for the audit trail [default: $USER]
    #[arg(long, env = "USER", hide_env = true, value_name = "NAME")]
    by: Option<String>,
}

impl ActorArg {
    pub(crate) fn requested_by(&self) -> OperatorActionRequest {
        OperatorActionRequest {
            by: self.by.clone(),
        }
    }
}
