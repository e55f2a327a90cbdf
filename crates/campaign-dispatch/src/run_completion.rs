//! The end of a campaign run: when all of its jobs are over, they say what it came to.

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

/// Ends a campaign run, if all of its jobs are over. Whoever ends the last of them asks; so does whoever finds a run with
/// nothing left to do, since the one that should have asked may have been killed.
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
    // Those scans were not one: a job may have gone from one status to another between them. One that is over stays so,
    // unless the run is changed as well.
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
        // Somebody else was first, or will ask again.
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

/// Whether a campaign run that came to this was cancelled before everybody was reached. Others are skipped for reasons of their
/// own.
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

/// How the items of a campaign run stand.
pub(crate) async fn count_run_items(
    store: &dyn Store,
    run: &SharedText,
) -> Result<ItemCounts, Error> {
    Ok(count_items_and_jobs(store, run).await?.0)
}

/// How the items of a campaign run stand, and how many of its jobs are over.
async fn count_items_and_jobs(
    store: &dyn Store,
    run: &SharedText,
) -> Result<(ItemCounts, u32), Error> {
    // The order of their ids does not change while they are read.
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
