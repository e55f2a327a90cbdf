//! The end of a campaign run: when all of its jobs are over, they say what it came to.

use onward_dispatch::{Control, JobStatus, Reason, RunAct, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Commit, Error, Field as _, Key, Kind, Records as _, Scan, Store};
use serde_json::json;

use crate::lists::chosen;
use crate::{audit, rows};

/// Ends a campaign run, if all of its jobs are over. Whoever ends the last of them asks; so does whoever finds a run with
/// nothing left to do, since the one that should have asked may have been killed.
pub(crate) async fn finish(store: &dyn Store, run: &Text, now: Timestamp) -> Result<bool, Error> {
    for status in [JobStatus::Queued, JobStatus::Locked, JobStatus::Failed] {
        let open = Scan::by::<Job>(Job::BY_TURN).equal(run).equal(&Text::from(status.as_str())).limit(1);
        if !store.rows(open).await?.is_empty() {
            return Ok(false);
        }
    }
    let stored: Option<(CampaignRun, u64)> = store.get(Key(vec![run.to_value()])).await?;
    let Some((mut run, version)) = stored else { return Ok(false) };
    // Those scans were not one: a job may have gone from one status to another between them. One that is over stays so,
    // unless the run is changed as well.
    let (tally, over) = count(store, &run.id).await?;
    if over != run.jobs {
        return Ok(false);
    }
    let outcome = tally.outcome(is_cut_short(store, &run, &tally).await?);
    let Some(status) = rows::run_status(&run).after(RunAct::End(outcome)) else { return Ok(false) };
    run.status = status.as_str().into();
    run.wake_at = Timestamp::MAX;
    run.ended_at = Some(now);
    let Tally { served, failed, skipped, .. } = tally;
    let detail = json!({ "status": status.as_str(), "served": served, "failed": failed, "skipped": skipped });
    let commit = audit::entry(Commit::new().update(&run, version), &run, "run.ended", &detail, now);
    match store.commit(commit).await {
        Ok(_) => Ok(true),
        // Somebody else was first, or will ask again.
        Err(error) if matches!(error.kind(), Kind::Conflict | Kind::Retry | Kind::Unknown) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a campaign run that came to this was cancelled before everybody was reached. Others are skipped for reasons of their
/// own.
pub(crate) async fn is_cut_short(store: &dyn Store, run: &CampaignRun, tally: &Tally) -> Result<bool, Error> {
    if Control::parse(&run.control) != Some(Control::Cancelled) || tally.skipped == 0 {
        return Ok(false);
    }
    let is_left_out = |item: &OutboxItem| item.reason.as_deref() == Some(Reason::Cancelled.as_str());
    let items = Scan::by::<OutboxItem>(OutboxItem::BY_RUN).equal(&run.id);
    Ok(!chosen(store, items, is_left_out, 1).await?.is_empty())
}

/// How the items of a campaign run stand.
pub(crate) async fn tally(store: &dyn Store, run: &Text) -> Result<Tally, Error> {
    Ok(count(store, run).await?.0)
}

/// How the items of a campaign run stand, and how many of its jobs are over.
async fn count(store: &dyn Store, run: &Text) -> Result<(Tally, u32), Error> {
    // The order of their ids does not change while they are read.
    let mut scan = Scan::all::<Job>().until(&Text::from(format!("{run}.~")));
    let mut after = Text::from(format!("{run}."));
    let (mut tally, mut over) = (Tally::default(), 0);
    loop {
        scan.after = Some(vec![after.to_value()]);
        let page: Vec<(Job, u64)> = store.list(scan.clone()).await?;
        for (job, _) in &page {
            tally += rows::tally(job);
            over += u32::from(rows::job_status(job).is_over());
        }
        match page.last() {
            Some((last, _)) if page.len() == scan.limit => after = last.id.clone(),
            _ => return Ok((tally, over)),
        }
    }
}
