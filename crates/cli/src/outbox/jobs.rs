//! `onward jobs ls`, `dead` and `redrive`: list and redrive campaign jobs.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::campaign::CampaignItemCounts;
use onward_api::outbox::{CampaignJob, CampaignJobStatus, ListJobsQuery};

use crate::campaign::ActorArg;
use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;
use crate::paging::{ListOutputArgs, ListPage};

/// List campaign jobs: those that are not completed, or all jobs of a run
///
/// Exit codes: 0 the jobs were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct JobListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Only jobs of this campaign run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only jobs in this status
    #[arg(long, value_parser = ["queued", "locked", "completed", "failed", "dead"])]
    status: Option<String>,
    #[command(flatten)]
    list: ListOutputArgs,
}

/// List dead jobs: those that have used up their attempts
///
/// Exit codes: 0 the jobs were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct DeadJobListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Only jobs of this campaign run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    list: ListOutputArgs,
}

/// Redrive dead jobs: retry the items that were given up when the attempts ran out
///
/// A job that waits for its next attempt, because the provider is busy or an attempt failed, is
/// retried now. Nothing is sent before the scheduled time of the campaign (schedule.at) or in quiet
/// hours.
///
/// Exit codes: 0 all jobs are redriven, 2 some could not be.
#[derive(clap::Args)]
pub(crate) struct JobRedriveArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Ids of the jobs
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    actor: ActorArg,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn list_jobs(args: &JobListArgs) -> anyhow::Result<ExitCode> {
    let status = args
        .status
        .as_ref()
        .map(|status| serde_json::from_value(status.as_str().into()))
        .transpose()?;
    print_jobs(
        &args.connection,
        &args.list,
        ListJobsQuery {
            run: args.run.clone(),
            status,
            ..ListJobsQuery::default()
        },
    )
    .await
}

pub(crate) async fn list_dead_jobs(args: &DeadJobListArgs) -> anyhow::Result<ExitCode> {
    let status = Some(CampaignJobStatus::Dead);
    print_jobs(
        &args.connection,
        &args.list,
        ListJobsQuery {
            run: args.run.clone(),
            status,
            ..ListJobsQuery::default()
        },
    )
    .await
}

async fn print_jobs(
    connection: &ScopedConnectionArgs,
    list: &ListOutputArgs,
    query: ListJobsQuery,
) -> anyhow::Result<ExitCode> {
    let onward = connection.open_connection(AccessMode::Read).await?;
    let heading = format!(
        "{:<43}  {:<9}  {:>5}  {:>6}  {:>6}  {:>7}  {:>8}  {:>8}  {:>6}  error",
        "job", "status", "items", "sent", "failed", "skipped", "in doubt", "attempts", "claims"
    );
    let page = async |limit, after| {
        let page = onward
            .list_jobs(ListJobsQuery {
                limit: Some(limit),
                after,
                ..query.clone()
            })
            .await?;
        Ok(ListPage {
            items: page.jobs,
            next: page.next,
        })
    };
    list.print_pages(&heading, format_job_row, page).await?;
    Ok(ExitCode::SUCCESS)
}

fn format_job_row(job: &CampaignJob) -> String {
    let CampaignJob {
        job: id,
        status,
        attempts,
        claims,
        items,
        counts,
        error,
        ..
    } = job;
    let CampaignItemCounts {
        sent,
        failed,
        skipped,
        in_doubt,
        ..
    } = counts;
    let (status, error) = (
        status.as_str(),
        console::escape_control_chars(error.as_deref().unwrap_or_default()),
    );
    format!(
        "{id:<43}  {status:<9}  {items:>5}  {sent:>6}  {failed:>6}  {skipped:>7}  {in_doubt:>8}  {attempts:>8}  {claims:>6}  {error}"
    )
}

pub(crate) async fn redrive_jobs(args: &JobRedriveArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Write).await?;
    let mut all_redriven = true;
    for job in &args.jobs {
        match onward.redrive_job(job, args.actor.requested_by()).await {
            Ok(job) if args.json => {
                writeln!(console::json_output(), "{}", serde_json::to_string(&job)?)?
            }
            Ok(job) => console::print_message(format_args!("{} is redriven", job.job)),
            // A job that cannot be redriven does not stop the others.
            Err(problem) => {
                all_redriven = false;
                super::print_refusal(job, &problem.detail);
            }
        }
    }
    Ok(if all_redriven {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    })
}
