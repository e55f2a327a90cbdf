//! `onward campaign deploy`: a campaign, from its file to a run.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_api::campaign::{AudiencePart, DeployCampaign, DeployedCampaign, Prerequisite, Reached, Recipient};
use onward_api::problem::{Code, Problem};
use onward_campaign::audience::Report;
use onward_dispatcher::Entropy;

use super::file::{Campaigned, Looked};
use super::{ByArg, check, watch};
use crate::access::{Access, Want, WorkArgs};
use crate::paint;
use crate::progress::Progress;
use crate::waiting::persist;

/// Parts of the audience that are on their way at a time.
const UNDER_WAY: usize = 8;

/// Deploy a campaign: check it, store its audience, then make its run and jobs, all of it or nothing
///
/// Deploying the same campaign for the same people again does nothing but say so; --key says what is the same. Where something has changed, nothing is deployed if earlier runs of the campaign, by its name, have reached any of them, or are to: --new-only reaches the others, --again reaches everybody again. A server (onward dev, onward serve) sends it.
///
/// Exit codes: 0 it is deployed, 1 it cannot be, or earlier runs have reached people (or, with --watch, not everybody was reached), 2 something went wrong.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
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
    by: ByArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = Campaigned::load(&args.file)?;
    let Looked { mut prerequisites, report, digest } = file.look()?;
    let onward = args.work.open(Want::Create).await?;
    check::add(&mut prerequisites, onward.check_campaign(file.document()?).await?.prerequisites);
    if prerequisites.iter().any(|it| !it.pass) {
        return unmet(args, &prerequisites, &report);
    }
    let audience = Entropy::default().id().to_string();
    upload(&file, &onward, &audience, report.good).await?;
    let key = match &args.key {
        // A key all the same: whoever hears no answer asks again.
        _ if args.again => Some(Entropy::default().id().to_string()),
        Some(key) => Some(key.clone()),
        None => Some(digest),
    };
    let reached = match (args.new_only, args.again) {
        (true, _) => Reached::LeaveOut,
        (false, true) => Reached::Again,
        (false, false) => Reached::Refuse,
    };
    let deploy = DeployCampaign { campaign: file.document()?, audience, key, reached, by: args.by.by().by };
    let mut deployed = match persist(async || onward.deploy_campaign(deploy.clone()).await).await {
        Ok(deployed) => deployed,
        Err(problem) if problem.code == Code::ReachedBefore => return refuse(args, &problem),
        Err(problem) if !problem.prerequisites.is_empty() => return unmet(args, &problem.prerequisites, &report),
        Err(problem) => return Err(problem.into()),
    };
    deployed.prerequisites = prerequisites;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&deployed)?)?;
    } else {
        tell(&deployed)?;
    }
    if args.watch { watch::until_over(&onward, &deployed.run, args.json).await } else { Ok(ExitCode::SUCCESS) }
}

/// It cannot be deployed: says what was looked at.
fn unmet(args: &Args, prerequisites: &[Prerequisite], report: &Report) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::json!({ "pass": false, "prerequisites": prerequisites }))?;
    } else {
        check::print(prerequisites, report)?;
    }
    Ok(ExitCode::from(1))
}

/// Earlier runs have reached people: says how to go on.
fn refuse(args: &Args, problem: &Problem) -> anyhow::Result<ExitCode> {
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(problem)?)?;
    } else {
        let how = if args.new_only {
            "there is nobody else; --again reaches everybody again"
        } else {
            "--new-only reaches the others, --again reaches everybody again"
        };
        paint::say(format_args!("{}: {how}", paint::plain(&problem.detail)));
    }
    Ok(ExitCode::from(1))
}

/// Stores the audience part by part, several at a time. Each can be stored again if its answer is lost.
async fn upload(file: &Campaigned, onward: &Access, audience: &str, all: u64) -> anyhow::Result<()> {
    let (mut rows, mut progress, mut sent) = (file.rows()?, Progress::new(true), 0_u64);
    let (mut under_way, mut is_end) = (FuturesUnordered::new(), false);
    let mut number = 0;
    loop {
        while !is_end && under_way.len() < UNDER_WAY {
            let mut recipients: Vec<Recipient> = Vec::new();
            while recipients.len() < file.campaign.job_items as usize {
                match file.next(&mut rows)? {
                    Some(recipient) => recipients.push(recipient),
                    None => break,
                }
            }
            is_end = recipients.len() < file.campaign.job_items as usize;
            if recipients.is_empty() {
                break;
            }
            let (place, part) = (number, AudiencePart { recipients });
            number += 1;
            under_way.push(async move {
                let count = part.recipients.len() as u64;
                persist(async || onward.put_audience_part(audience, place, part.clone()).await).await.map(|()| count)
            });
        }
        let Some(stored) = under_way.next().await else { return Ok(()) };
        sent += stored?;
        progress.at(sent, || format!("{sent} of {all} recipients stored"));
    }
}

fn tell(deployed: &DeployedCampaign) -> io::Result<()> {
    let DeployedCampaign { run, existed, items, jobs, left_out, .. } = deployed;
    writeln!(io::stdout(), "{run}")?;
    if *existed {
        paint::say(
            "the same campaign was deployed for the same people before: this is its run (campaign retry reaches those whom it did not, --again everybody)",
        );
    } else {
        let (items, jobs) = (paint::counted((*items).into(), "recipient"), paint::counted((*jobs).into(), "job"));
        let left_out = match left_out {
            0 => String::new(),
            _ => format!(", without {left_out} whom earlier runs have reached"),
        };
        let deployed = paint::good("deployed");
        paint::say(format_args!("{deployed}: {items} in {jobs}{left_out}; onward campaign watch {run}"));
    }
    Ok(())
}
