//! Campaigns: check, preview, deploy, watch, pause, resume, cancel and try again.

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

use crate::retry::block_on;

#[derive(Subcommand)]
pub(crate) enum CampaignSubcommand {
    Check(check::CampaignCheckArgs),
    Preview(preview::CampaignPreviewArgs),
    Deploy(deploy::CampaignDeployArgs),
    Ls(ls::CampaignListArgs),
    Show(show::CampaignShowArgs),
    Watch(watch::CampaignWatchArgs),
    /// Begin nothing more until the campaign run is resumed; what is under way is settled
    ///
    /// Exit codes: 0 it is paused, 2 it could not be: it is over, say.
    Pause(control::CampaignControlArgs),
    /// Go on with a campaign run that was paused
    ///
    /// Exit codes: 0 it goes on, 2 it could not: it is over, say.
    Resume(control::CampaignControlArgs),
    /// Begin nothing more, ever: whoever was not reached by then is skipped
    ///
    /// Exit codes: 0 it is cancelled, 2 it could not be: it is over, say.
    Cancel(control::CampaignControlArgs),
    Retry(retry::CampaignRetryArgs),
    /// Leave people alone who want nothing more
    ///
    /// Exit codes: 0 it is done, 2 it could not be, or not for all.
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

/// Which campaign run.
#[derive(clap::Args)]
pub(crate) struct CampaignRunArg {
    /// The campaign run: its id, or the beginning of it
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
}

/// Who wants something.
#[derive(clap::Args)]
pub(crate) struct ActorArg {
    /// Who wants it, for the audit trail
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
