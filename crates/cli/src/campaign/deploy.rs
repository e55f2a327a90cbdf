//! `onward campaign deploy`: a campaign, from its file to a run.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_api::campaign::{
    DeployCampaignRequest, DeployCampaignResponse, PrerequisiteCheck, PutAudiencePartRequest,
    RecipientInput, RepeatContactPolicy,
};
use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::EntropySource;
use onward_campaign_file::audience::AudienceReport;

use super::local_campaign::{LocalCampaign, LocalCheckResult};
use super::{ActorArg, check, watch};
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::console;
use crate::progress::ProgressLine;
use crate::retry::retry_transient;

/// Parts of the audience that are on their way at a time.
const CONCURRENT_UPLOADS: usize = 8;

/// Deploy a campaign: check it, store its audience, then make its run and jobs, all of it or nothing
///
/// Deploying the same campaign for the same people again does nothing but say so; --key says what is the same. Where something has changed, nothing is deployed if earlier runs of the campaign, by its name, have reached any of them, or are to: --new-only reaches the others, --again reaches everybody again. A server (onward dev, onward serve) sends it.
///
/// Exit codes: 0 it is deployed, 1 it cannot be, or earlier runs have reached people (or, with --watch, not everybody was reached), 2 something went wrong.
#[derive(clap::Args)]
pub(crate) struct CampaignDeployArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// The campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Deploying again with the same key does nothing; unless told, the campaign and its audience are the key
    #[arg(long)]
    key: Option<String>,
    /// Reach only those whom no earlier run of the campaign has reached
    #[arg(long, conflicts_with = "again")]
    new_only: bool,
    /// Reach everybody, also those whom earlier runs of the campaign have reached
    #[arg(long, conflicts_with = "key")]
    again: bool,
    /// Watch it until it is over
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
    let audience = EntropySource::default().random_id().to_string();
    upload_audience(&file, &onward, &audience, report.good).await?;
    let key = match &args.key {
        // A key all the same: whoever hears no answer asks again.
        _ if args.again => Some(EntropySource::default().random_id().to_string()),
        Some(key) => Some(key.clone()),
        None => Some(digest),
    };
    let reached = match (args.new_only, args.again) {
        (true, _) => RepeatContactPolicy::LeaveOut,
        (false, true) => RepeatContactPolicy::Again,
        (false, false) => RepeatContactPolicy::Refuse,
    };
    let deploy = DeployCampaignRequest {
        campaign: file.to_json_document()?,
        audience,
        key,
        reached,
        by: args.actor.requested_by().by,
    };
    let mut deployed =
        match retry_transient(async || onward.deploy_campaign(deploy.clone()).await).await {
            Ok(deployed) => deployed,
            Err(problem) if problem.code == Code::ReachedBefore => {
                return report_reached_before(args, &problem);
            }
            Err(problem) if !problem.prerequisites.is_empty() => {
                return report_unmet_prerequisites(args, &problem.prerequisites, &report);
            }
            Err(problem) => return Err(problem.into()),
        };
    deployed.prerequisites = prerequisites;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&deployed)?)?;
    } else {
        print_deployed_campaign(&deployed)?;
    }
    if args.watch {
        watch::watch_run_until_over(&onward, &deployed.run, args.json).await
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

/// It cannot be deployed: says what was looked at.
fn report_unmet_prerequisites(
    args: &CampaignDeployArgs,
    prerequisites: &[PrerequisiteCheck],
    report: &AudienceReport,
) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(
            io::stdout(),
            "{}",
            serde_json::json!({ "pass": false, "prerequisites": prerequisites })
        )?;
    } else {
        check::print_check_report(prerequisites, report)?;
    }
    Ok(ExitCode::from(1))
}

/// Earlier runs have reached people: says how to go on.
fn report_reached_before(args: &CampaignDeployArgs, problem: &Problem) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(problem)?)?;
    } else {
        let how = if args.new_only {
            "there is nobody else; --again reaches everybody again"
        } else {
            "--new-only reaches the others, --again reaches everybody again"
        };
        console::print_message(format_args!(
            "{}: {how}",
            console::escape_control_chars(&problem.detail)
        ));
    }
    Ok(ExitCode::from(1))
}

/// Stores the audience part by part, several at a time. Each can be stored again if its answer is lost.
async fn upload_audience(
    file: &LocalCampaign,
    onward: &TargetConnection,
    audience: &str,
    all: u64,
) -> anyhow::Result<()> {
    let (mut rows, mut progress, mut sent) =
        (file.open_audience()?, ProgressLine::new(true), 0_u64);
    let (mut under_way, mut is_end) = (FuturesUnordered::new(), false);
    let mut number = 0;
    loop {
        while !is_end && under_way.len() < CONCURRENT_UPLOADS {
            let mut recipients: Vec<RecipientInput> = Vec::new();
            while recipients.len() < file.campaign.job_items as usize {
                match file.next_recipient(&mut rows)? {
                    Some(recipient) => recipients.push(recipient),
                    None => break,
                }
            }
            is_end = recipients.len() < file.campaign.job_items as usize;
            if recipients.is_empty() {
                break;
            }
            let (place, part) = (number, PutAudiencePartRequest { recipients });
            number += 1;
            under_way.push(async move {
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
        let Some(stored) = under_way.next().await else {
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
        left_out,
        ..
    } = deployed;
    writeln!(io::stdout(), "{run}")?;
    if *existed {
        console::print_message(
            "the same campaign was deployed for the same people before: this is its run (campaign retry reaches those whom it did not, --again everybody)",
        );
    } else {
        let (items, jobs) = (
            console::format_count((*items).into(), "recipient"),
            console::format_count((*jobs).into(), "job"),
        );
        let left_out = match left_out {
            0 => String::new(),
            _ => format!(", without {left_out} whom earlier runs have reached"),
        };
        let deployed = console::style_success("deployed");
        console::print_message(format_args!(
            "{deployed}: {items} in {jobs}{left_out}; onward campaign watch {run}"
        ));
    }
    Ok(())
}
