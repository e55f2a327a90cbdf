//! Finishes a campaign run when all of its jobs are over, with the status that follows from their
//! item counts.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunTransition, ItemCounts, ItemReason, JobStatus,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind, TableScan,
};
use serde_json::json;

use crate::listing::scan_filtered;
use crate::{audit, row_mapping};

/// Finishes a campaign run if all of its jobs are over. The worker that ends the last job calls
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
            .where_equal(&SharedText::from(status.as_str()))
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
    // that is over stays over unless the run's row changes as well.
    let (tally, over) = count_items_and_jobs(store, &run.id).await?;
    if over != run.jobs {
        return Ok(false);
    }
    let outcome = tally.final_run_status(was_cancelled_early(store, &run, &tally).await?);
    let Some(status) =
        row_mapping::run_status(&run).next_status(CampaignRunTransition::Finish(outcome))
    else {
        return Ok(false);
    };
    run.status = status.as_str().into();
    run.wake_at = Timestamp::MAX;
    run.ended_at = Some(now);
    let ItemCounts {
        served,
        failed,
        skipped,
        ..
    } = tally;
    let detail = json!({ "status": status.as_str(), "served": served, "failed": failed, "skipped": skipped });
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

/// Whether a campaign run with these counts was cancelled before all recipients were reached. Items
/// can be skipped for other reasons, which do not count.
pub(crate) async fn was_cancelled_early(
    store: &dyn Store,
    run: &CampaignRunRow,
    tally: &ItemCounts,
) -> Result<bool, Error> {
    if CampaignRunControl::parse(&run.control) != Some(CampaignRunControl::Cancelled)
        || tally.skipped == 0
    {
        return Ok(false);
    }
    let is_left_out =
        |item: &OutboxItemRow| item.reason.as_deref() == Some(ItemReason::Cancelled.as_str());
    let items = TableScan::by_index::<OutboxItemRow>(OutboxItemRow::BY_RUN).where_equal(&run.id);
    Ok(!scan_filtered(store, items, is_left_out, 1)
        .await?
        .is_empty())
}

/// Counts the items of a campaign run by state, from the counts in its jobs.
pub(crate) async fn count_run_items(
    store: &dyn Store,
    run: &SharedText,
) -> Result<ItemCounts, Error> {
    Ok(count_items_and_jobs(store, run).await?.0)
}

/// Counts the items of a campaign run by state, and the jobs that are over.
async fn count_items_and_jobs(
    store: &dyn Store,
    run: &SharedText,
) -> Result<(ItemCounts, u32), Error> {
    // Scanned by id, because that order does not change while the jobs are read.
    let mut scan =
        TableScan::all_rows::<JobRow>().where_at_most(&SharedText::from(format!("{run}.~")));
    let mut after = SharedText::from(format!("{run}."));
    let (mut tally, mut over) = (ItemCounts::default(), 0);
    loop {
        scan.after = Some(vec![after.to_value()]);
        let page: Vec<(JobRow, u64)> = store.list_records(scan.clone()).await?;
        for (job, _) in &page {
            tally += row_mapping::job_counts(job);
            over += u32::from(row_mapping::job_status(job).is_terminal());
        }
        match page.last() {
            Some((last, _)) if page.len() == scan.limit => after = last.id.clone(),
            _ => return Ok((tally, over)),
        }
    }
}
