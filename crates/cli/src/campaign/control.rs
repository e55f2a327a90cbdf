//! `onward campaign pause`, `resume` and `cancel`: change the control state of a campaign run.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::campaign::CampaignControl;

use super::{ActorArg, CampaignRunArg, ls};
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

#[derive(clap::Args)]
pub(crate) struct CampaignControlArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    #[command(flatten)]
    actor: ActorArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn control_campaign_run(
    args: &CampaignControlArgs,
    control: CampaignControl,
) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let run = onward
        .control_campaign_run(&args.run.run, control, args.actor.requested_by())
        .await?;
    if args.json {
        writeln!(console::json_output(), "{}", serde_json::to_string(&run)?)?;
    } else {
        console::print_message(format_args!(
            "{} is {}",
            run.summary.run,
            ls::status_label(&run.summary)
        ));
    }
    Ok(ExitCode::SUCCESS)
}
