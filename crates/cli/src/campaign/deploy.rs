//! `onward campaign deploy`: checks a campaign file, uploads its audience and creates a run.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_api::campaign::{
    DeployCampaignRequest, DeployCampaignResponse, PrerequisiteCheck, PreviousRecipientsPolicy,
    PutAudiencePartRequest, RecipientInput,
};
use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::EntropySource;
use onward_campaign_file::audience::AudienceReport;

use super::local_campaign::{LocalCampaign, LocalCheckResult};
use super::{ActorArg, check, watch};
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::console::{self, OutputFormat};
use crate::progress::ProgressLine;
use crate::retry::retry_transient;

/// Maximum number of audience parts that are uploaded at a time.
const CONCURRENT_UPLOADS: usize = 8;

/// Deploy a campaign: check it, store its audience, then create its run and jobs atomically
///
/// Deploying the same campaign with the same audience again creates nothing and prints the existing
/// run; --key sets another idempotency key. If the campaign or its audience has changed, the
/// deployment is refused when an earlier run of a campaign with this name has reached any of the
/// recipients or is going to: --new-only sends to the other recipients, --resend sends to
/// all of them again. A server (onward dev, onward serve) does the sending.
///
/// Exit codes: 0 the campaign is deployed, 1 it cannot be deployed or earlier runs have reached
/// recipients (with --watch also: not all recipients were reached), 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct CampaignDeployArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Idempotency key: deploying again with the same key creates nothing [default: digest of the
    /// campaign and its audience]
    #[arg(long)]
    key: Option<String>,
    /// Send only to recipients that no earlier run of the campaign has reached
    #[arg(long, conflicts_with = "resend")]
    new_only: bool,
    /// Send to all recipients, including those that earlier runs of the campaign have reached
    #[arg(long, conflicts_with = "key")]
    resend: bool,
    /// Watch the run until it has ended
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    actor: ActorArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn deploy_campaign(args: &CampaignDeployArgs) -> anyhow::Result<ExitCode> {
    let file = LocalCampaign::load(&args.file)?;
    let LocalCheckResult {
        mut prerequisites,
        report,
        digest,
    } = file.run_checks()?;
    let onward = args.connection.open_connection(AccessMode::Create).await?;
    check::merge_prerequisites(
        &mut prerequisites,
        onward
            .check_campaign(file.to_json_document()?)
            .await?
            .prerequisites,
    );
    if prerequisites.iter().any(|it| !it.pass) {
        return report_unmet_prerequisites(args, &prerequisites, &report);
    }
    warn_conflicting_rows(&prerequisites);
    let audience = EntropySource::default().random_id().to_string();
    upload_audience(&file, &onward, &audience, report.valid).await?;
    let key = match &args.key {
        // A random key makes the request safe to retry when the response is lost.
        _ if args.resend => Some(EntropySource::default().random_id().to_string()),
        Some(key) => Some(key.clone()),
        None => Some(digest),
    };
    let previous_recipients = match (args.new_only, args.resend) {
        (true, _) => PreviousRecipientsPolicy::Exclude,
        (false, true) => PreviousRecipientsPolicy::Resend,
        (false, false) => PreviousRecipientsPolicy::Reject,
    };
    let deploy = DeployCampaignRequest {
        campaign: file.to_json_document()?,
        audience,
        key,
        previous_recipients,
        by: args.actor.requested_by().by,
    };
    let mut deployed =
        match retry_transient(async || onward.deploy_campaign(deploy.clone()).await).await {
            Ok(deployed) => deployed,
            Err(problem) if problem.code == Code::RecipientsAlreadyReached => {
                return report_reached_before(args, &problem);
            }
            Err(problem) if !problem.prerequisites.is_empty() => {
                return report_unmet_prerequisites(args, &problem.prerequisites, &report);
            }
            Err(problem) => return Err(problem.into()),
        };
    deployed.prerequisites = prerequisites;
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&deployed)?
        )?;
    } else {
        print_deployed_campaign(&deployed)?;
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

/// Warns about recipients that the audience lists with several addresses.
fn warn_conflicting_rows(prerequisites: &[PrerequisiteCheck]) {
    if let Some(conflicts) = prerequisites
        .iter()
        .find(|it| it.id == "audience.conflicts")
    {
        console::print_message(format_args!(
            "{}: {}",
            console::style_error("warning"),
            console::escape_control_chars(&conflicts.message)
        ));
    }
}

/// Reports the failed checks of a campaign that cannot be deployed.
fn report_unmet_prerequisites(
    args: &CampaignDeployArgs,
    prerequisites: &[PrerequisiteCheck],
    report: &AudienceReport,
) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(
            console::text_output(),
            "{}",
            serde_json::json!({ "pass": false, "prerequisites": prerequisites })
        )?;
    } else {
        check::print_check_report(prerequisites, report)?;
    }
    Ok(ExitCode::from(1))
}

/// Reports that earlier runs have reached recipients, and the options that resolve it.
fn report_reached_before(args: &CampaignDeployArgs, problem: &Problem) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(problem)?
        )?;
    } else {
        let remedy = if args.new_only {
            "no other recipients are left; use --resend to send to all recipients again"
        } else {
            "use --new-only to send only to the others, or --resend to send to all recipients again"
        };
        console::print_message(format_args!(
            "{}: {remedy}",
            console::escape_control_chars(&problem.detail)
        ));
    }
    Ok(ExitCode::from(1))
}

/// Uploads the audience in parts, several at a time. Storing a part is idempotent, so a part is
/// sent again when its response is lost.
async fn upload_audience(
    file: &LocalCampaign,
    onward: &TargetConnection,
    audience: &str,
    all: u64,
) -> anyhow::Result<()> {
    let (mut rows, mut progress, mut sent) =
        (file.open_audience()?, ProgressLine::on_terminal(), 0_u64);
    let (mut uploads, mut is_exhausted) = (FuturesUnordered::new(), false);
    let mut number = 0;
    loop {
        while !is_exhausted && uploads.len() < CONCURRENT_UPLOADS {
            let mut recipients: Vec<RecipientInput> = Vec::new();
            while recipients.len() < file.campaign.job_size as usize {
                match file.next_deployed_recipient(&mut rows)? {
                    Some(recipient) => recipients.push(recipient),
                    None => break,
                }
            }
            is_exhausted = recipients.len() < file.campaign.job_size as usize;
            if recipients.is_empty() {
                break;
            }
            let (place, part) = (number, PutAudiencePartRequest { recipients });
            number += 1;
            uploads.push(async move {
                let count = part.recipients.len() as u64;
                retry_transient(async || {
                    onward
                        .put_audience_part(audience, place, part.clone())
                        .await
                })
                .await
                .map(|()| count)
            });
        }
        let Some(stored) = uploads.next().await else {
            return Ok(());
        };
        sent += stored?;
        progress.update_count(sent, || format!("{sent} of {all} recipients stored"));
    }
}

fn print_deployed_campaign(deployed: &DeployCampaignResponse) -> io::Result<()> {
    let DeployCampaignResponse {
        run,
        existed,
        items,
        jobs,
        excluded,
        ..
    } = deployed;
    writeln!(console::text_output(), "{run}")?;
    if *existed {
        console::print_message(
            "already deployed: this is the run of the same campaign and audience (campaign retry \
             sends to recipients that it did not reach, --resend to all recipients again)",
        );
    } else {
        let (items, jobs) = (
            console::format_count((*items).into(), "recipient"),
            console::format_count((*jobs).into(), "job"),
        );
        let excluded = match excluded {
            0 => String::new(),
            _ => format!(", excluding {excluded} that earlier runs reached"),
        };
        let deployed = console::style_success("deployed");
        console::print_message(format_args!(
            "{deployed}: {items} in {jobs}{excluded}; onward campaign watch {run}"
        ));
    }
    Ok(())
}
