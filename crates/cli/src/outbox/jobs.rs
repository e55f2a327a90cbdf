//! `onward jobs ls`, `dead` and `redrive`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::campaign::CampaignTally;
use onward_api::outbox::{Job, JobListing, JobStatus};

use crate::access::{Want, WorkArgs};
use crate::campaign::ByArg;
use crate::pages::{ListArgs, Page};
use crate::paint;

/// List jobs of campaign runs: those that are not completed, or all of a run
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Only jobs of this campaign run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only jobs in this status
    #[arg(long, value_parser = ["queued", "locked", "completed", "failed", "dead"])]
    status: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// List jobs that were tried as often as they may be
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct DeadArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Only jobs of this campaign run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Try dead jobs again: those of their items that nobody tried any more
///
/// Jobs that wait to be tried again, for a provider that is busy or after a try that came to nothing, are tried now. Nothing is sent before the time that the campaign is scheduled for (schedule.at), and nothing in quiet hours.
///
/// Exit codes: 0 they are tried again, 2 some could not be.
#[derive(clap::Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    by: ByArg,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn ls(args: &LsArgs) -> anyhow::Result<ExitCode> {
    let status = args.status.as_ref().map(|status| serde_json::from_value(status.as_str().into())).transpose()?;
    list(&args.work, &args.list, JobListing { run: args.run.clone(), status, ..JobListing::default() }).await
}

pub(crate) async fn dead(args: &DeadArgs) -> anyhow::Result<ExitCode> {
    let status = Some(JobStatus::Dead);
    list(&args.work, &args.list, JobListing { run: args.run.clone(), status, ..JobListing::default() }).await
}

async fn list(work: &WorkArgs, list: &ListArgs, asked: JobListing) -> anyhow::Result<ExitCode> {
    let onward = work.open(Want::Read).await?;
    let heading = format!(
        "{:<43}  {:<9}  {:>5}  {:>6}  {:>6}  {:>7}  {:>8}  {:>5}  error",
        "job", "status", "items", "served", "failed", "skipped", "in doubt", "tries"
    );
    let page = async |limit, after| {
        let page = onward.jobs(JobListing { limit: Some(limit), after, ..asked.clone() }).await?;
        Ok(Page { items: page.jobs, next: page.next })
    };
    list.print(&heading, line, page).await?;
    Ok(ExitCode::SUCCESS)
}

fn line(job: &Job) -> String {
    let Job { job: id, status, attempts, items, tally, error, .. } = job;
    let CampaignTally { served, failed, skipped, in_doubt, .. } = tally;
    let (status, error) = (status.as_str(), paint::plain(error.as_deref().unwrap_or_default()));
    format!(
        "{id:<43}  {status:<9}  {items:>5}  {served:>6}  {failed:>6}  {skipped:>7}  {in_doubt:>8}  {attempts:>5}  {error}"
    )
}

pub(crate) async fn redrive(args: &RedriveArgs) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Write).await?;
    let mut is_whole = true;
    for job in &args.jobs {
        match onward.redrive(job, args.by.by()).await {
            Ok(job) if args.json => writeln!(io::stdout(), "{}", serde_json::to_string(&job)?)?,
            Ok(job) => paint::say(format_args!("{} is tried again", job.job)),
            // One that cannot be tried does not keep back the next.
            Err(problem) => {
                is_whole = false;
                super::say_refused(job, &problem.detail);
            }
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
