//! `onward campaign deploy`: a campaign, from its file to a run.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onward_api::campaign::{AudiencePart, DeployCampaign, DeployedCampaign, Recipient};
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
/// Deploying the same campaign for the same people again does nothing but say so, unless --again; --key says what is the same. A server (onward dev, onward serve) sends it.
///
/// Exit codes: 0 it is deployed, 1 it cannot be (or, with --watch, not everybody was reached), 2 something went wrong.
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
    /// Deploy it again, though the same campaign was deployed for the same people before
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
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::json!({ "pass": false, "prerequisites": prerequisites }))?;
        } else {
            check::print(&prerequisites, &report)?;
        }
        return Ok(ExitCode::from(1));
    }
    let audience = Entropy::default().id().to_string();
    upload(&file, &onward, &audience, report.good).await?;
    let key = match &args.key {
        // A key all the same: whoever hears no answer asks again.
        _ if args.again => Some(Entropy::default().id().to_string()),
        Some(key) => Some(key.clone()),
        None => Some(digest),
    };
    let deploy = DeployCampaign { campaign: file.document()?, audience, key, by: args.by.by().by };
    let mut deployed = persist(async || onward.deploy_campaign(deploy.clone()).await).await?;
    deployed.prerequisites = prerequisites;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&deployed)?)?;
    } else {
        tell(&deployed)?;
    }
    if args.watch { watch::until_over(&onward, &deployed.run, args.json).await } else { Ok(ExitCode::SUCCESS) }
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
    let DeployedCampaign { run, existed, items, jobs, .. } = deployed;
    writeln!(io::stdout(), "{run}")?;
    if *existed {
        paint::say(
            "the same campaign was deployed for the same people before: this is its run (--again deploys another)",
        );
    } else {
        let (items, jobs) = (paint::counted((*items).into(), "recipient"), paint::counted((*jobs).into(), "job"));
        paint::say(format_args!("{}: {items} in {jobs}; onward campaign watch {run}", paint::good("deployed")));
    }
    Ok(())
}
