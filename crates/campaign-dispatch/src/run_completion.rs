//! Finishes a campaign run when all of its jobs have ended, with the status that follows from their
//! item counts.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunTransition, ItemCounts, ItemReason, JobStatus, RunCoverage,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind, TableScan,
};
use serde_json::json;

use crate::listing::scan_filtered;
use crate::{audit, row_mapping};

/// Finishes a campaign run if all of its jobs have ended. The worker that ends the last job calls
/// this; so does a dispatcher that finds a run with no work left, since that worker may have
/// crashed. Returns whether this call finished the run.
pub(crate) async fn finish_run(
    store: &dyn Store,
    run: &SharedText,
    now: Timestamp,
) -> Result<bool, Error> {
    for status in [JobStatus::Queued, JobStatus::Locked, JobStatus::Failed] {
        let open = TableScan::by_index::<JobRow>(JobRow::BY_TURN)
            .where_equal(run)
            .where_equal(&status)
            .with_limit(1);
        if !store.scan_rows(open).await?.is_empty() {
            return Ok(false);
        }
    }
    let stored: Option<(CampaignRunRow, u64)> =
        store.read_record(RowKey(vec![run.to_value()])).await?;
    let Some((mut run, version)) = stored else {
        return Ok(false);
    };
    // The scans above are not one snapshot: a job may have changed its status between them. A job
    // that has ended stays so unless the run's row changes as well.
    let (counts, ended_jobs) = count_items_and_jobs(store, &run.id).await?;
    if ended_jobs != run.jobs {
        return Ok(false);
    }
    let outcome = counts.final_run_status(run_coverage(store, &run, &counts).await?);
    let Some(status) = run
        .status
        .next_status(CampaignRunTransition::Finish(outcome))
    else {
        return Ok(false);
    };
    run.status = status;
    run.wake_at = Timestamp::MAX;
    run.ended_at = Some(now);
    let ItemCounts {
        sent,
        failed,
        skipped,
        ..
    } = counts;
    let detail =
        json!({ "status": status.as_str(), "sent": sent, "failed": failed, "skipped": skipped });
    let commit = audit::append_entry(
        Commit::new().update(&run, version),
        &run,
        "run.ended",
        &detail,
        now,
    );
    match store.commit(commit).await {
        Ok(_) => Ok(true),
        // Another process finished the run first, or a later call will.
        Err(error)
            if matches!(
                error.kind(),
                StoreErrorKind::Conflict | StoreErrorKind::Retry | StoreErrorKind::Unknown
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Determines whether a campaign run with these counts was cancelled before all recipients were
/// reached. Items can be skipped for other reasons, which do not count.
pub(crate) async fn run_coverage(
    store: &dyn Store,
    run: &CampaignRunRow,
    counts: &ItemCounts,
) -> Result<RunCoverage, Error> {
    if run.control != CampaignRunControl::Cancelled || counts.skipped == 0 {
        return Ok(RunCoverage::AllRecipients);
    }
    let is_cancelled = |item: &OutboxItemRow| item.reason == Some(ItemReason::Cancelled);
    let items = TableScan::by_index::<OutboxItemRow>(OutboxItemRow::BY_RUN).where_equal(&run.id);
    let cancelled = scan_filtered(store, items, is_cancelled, 1).await?;
    Ok(if cancelled.is_empty() {
        RunCoverage::AllRecipients
    } else {
        RunCoverage::CutShort
    })
}

/// Counts the items of a campaign run by state, from the counts in its jobs.
pub(crate) async fn count_run_items(
    store: &dyn Store,
    run: &SharedText,
) -> Result<ItemCounts, Error> {
    Ok(count_items_and_jobs(store, run).await?.0)
}

/// Counts the items of a campaign run by state, and the jobs that have ended.
async fn count_items_and_jobs(
    store: &dyn Store,
    run: &SharedText,
) -> Result<(ItemCounts, u32), Error> {
    // Scanned by id, because that order does not change while the jobs are read.
    let mut scan =
        TableScan::all_rows::<JobRow>().where_at_most(&SharedText::from(format!("{run}.~")));
    let mut after = SharedText::from(format!("{run}."));
    let (mut counts, mut ended_jobs) = (ItemCounts::default(), 0);
    loop {
        scan.after = Some(vec![after.to_value()]);
        let page: Vec<(JobRow, u64)> = store.list_records(scan.clone()).await?;
        for (job, _) in &page {
            counts += row_mapping::job_counts(job);
            ended_jobs += u32::from(job.status.is_terminal());
        }
        match page.last() {
            Some((last, _)) if page.len() == scan.limit => after = last.id.clone(),
            _ => return Ok((counts, ended_jobs)),
        }
    }
}
