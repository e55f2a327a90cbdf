//! Campaigns: check, preview, deploy, watch, pause, resume, cancel and try again.

mod bar;
mod check;
mod control;
mod deploy;
mod file;
mod ls;
mod preview;
mod retry;
mod show;
mod stalled;
mod suppress;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use onward_api::campaign::By;

use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum Command {
    Check(check::Args),
    Preview(preview::Args),
    Deploy(deploy::Args),
    Ls(ls::Args),
    Show(show::Args),
    Watch(watch::Args),
    /// Begin nothing more until the campaign run is resumed; what is under way is settled
    ///
    /// Exit codes: 0 it is paused, 2 it could not be: it is over, say.
    Pause(control::Args),
    /// Go on with a campaign run that was paused
    ///
    /// Exit codes: 0 it goes on, 2 it could not: it is over, say.
    Resume(control::Args),
    /// Begin nothing more, ever: whoever was not reached by then is skipped
    ///
    /// Exit codes: 0 it is cancelled, 2 it could not be: it is over, say.
    Cancel(control::Args),
    Retry(retry::Args),
    /// Leave people alone who want nothing more
    ///
    /// Exit codes: 0 it is done, 2 it could not be, or not for all.
    #[command(subcommand)]
    Suppress(suppress::Command),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    use onward_api::campaign::Control;
    match command {
        Command::Check(args) => block_on(check::run(args)),
        Command::Preview(args) => block_on(preview::run(args)),
        Command::Deploy(args) => block_on(deploy::run(args)),
        Command::Ls(args) => block_on(ls::run(args)),
        Command::Show(args) => block_on(show::run(args)),
        Command::Watch(args) => block_on(watch::run(args)),
        Command::Pause(args) => block_on(control::run(args, Control::Paused)),
        Command::Resume(args) => block_on(control::run(args, Control::Active)),
        Command::Cancel(args) => block_on(control::run(args, Control::Cancelled)),
        Command::Retry(args) => block_on(retry::run(args)),
        Command::Suppress(command) => block_on(suppress::run(command)),
    }
}

/// Which campaign run.
#[derive(clap::Args)]
pub(crate) struct RunArg {
    /// The campaign run: its id, or the beginning of it
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
}

/// Who wants something.
#[derive(clap::Args)]
pub(crate) struct ByArg {
    /// Who wants it, for the audit trail
    #[arg(long, env = "USER", hide_env = true, value_name = "NAME")]
    by: Option<String>,
}

impl ByArg {
    pub(crate) fn by(&self) -> By {
        By { by: self.by.clone() }
    }
}
