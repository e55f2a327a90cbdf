//! Converts between the rows of the store and the types of `onward-campaign-core`.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, CampaignRunStatus, DeliveryChannel, ItemChange, ItemCounts, ItemKey,
    ItemProgress, ItemReason, ItemState, ItemStatus, JobStatus, JobTransition,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnValue, Error, RecordReader as _, Store, TableScan};

/// The state of the item in this row.
pub fn item_state(row: &OutboxItemRow) -> ItemState {
    let status = ItemStatus::parse(&row.status).unwrap_or(ItemStatus::Queued);
    ItemState::from_status(status, row.held_since.is_some(), row.doubt_since.is_some())
}

/// The progress of an item as an attempt at the time `now` reads it.
pub(crate) fn item_progress(row: &OutboxItemRow, now: Timestamp) -> ItemProgress {
    let doubt = row.doubt_since.map_or(0, |since| {
        now.as_micros().saturating_sub(since.as_micros()) / 1_000
    });
    ItemProgress {
        state: item_state(row),
        sends: row.calls,
        in_doubt_ms: u64::try_from(doubt).unwrap_or(0),
        reason: row.reason.as_deref().and_then(ItemReason::parse),
    }
}

/// The id of a job. The ids of a run's jobs sort by number.
pub(crate) fn job_id(run: &str, number: u32) -> SharedText {
    format!("{run}.{number:06}").into()
}

/// The id of an item. The ids of a job's items sort by position.
pub(crate) fn item_id(job: &str, position: usize) -> SharedText {
    format!("{job}.{position:04}").into()
}

/// The position of an item in its job, or `None` if the id is malformed.
pub(crate) fn item_position(item: &str) -> Option<usize> {
    item.rsplit_once('.')?.1.parse().ok()
}

/// The job of an item, or `None` if the id is malformed.
pub(crate) fn job_id_of_item(item: &str) -> Option<SharedText> {
    item.rsplit_once('.').map(|(job, _)| job.into())
}

/// Reads the items of a job that have rows, ordered by position.
pub(crate) async fn read_job_items(
    store: &dyn Store,
    job: &str,
) -> Result<Vec<(OutboxItemRow, u64)>, Error> {
    let mut scan =
        TableScan::all_rows::<OutboxItemRow>().where_at_most(&SharedText::from(format!("{job}.~")));
    let mut after = SharedText::from(format!("{job}."));
    let mut found = Vec::new();
    loop {
        scan.after = Some(vec![ColumnValue::Text(after)]);
        let page: Vec<(OutboxItemRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(found);
        };
        after = last.id.clone();
        let is_last = page.len() < scan.limit;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}

/// The values that all items of a job share.
pub(crate) struct ItemTemplate<'a> {
    pub(crate) run: &'a CampaignRunRow,
    pub(crate) job: &'a JobRow,
    pub(crate) provider: &'a SharedText,
    /// The scheduled time of the run in the text form that idempotency keys use.
    pub(crate) scheduled_for: &'a str,
}

impl ItemTemplate<'_> {
    /// Creates the row of a new item, before any change is applied to it.
    pub(crate) fn new_item(
        &self,
        position: usize,
        recipient: &AudienceRecipient,
        now: Timestamp,
    ) -> OutboxItemRow {
        let Self { run, job, .. } = self;
        OutboxItemRow {
            id: item_id(&job.id, position),
            run_id: run.id.clone(),
            job_id: job.id.clone(),
            tenant_id: run.tenant_id.clone(),
            workspace_id: run.workspace_id.clone(),
            channel: run.channel.clone(),
            provider: self.provider.clone(),
            recipient_id: recipient.id.as_str().into(),
            recipient_address: recipient.address.as_str().into(),
            idempotency_key: self.item_key(recipient).to_string().into(),
            status: ItemStatus::Queued.as_str().into(),
            skipped: false,
            calls: 0,
            held_since: None,
            doubt_since: None,
            provider_message_id: None,
            reason: None,
            error: None,
            payload: None,
            created_at: now,
            settled_at: None,
        }
    }

    fn item_key(&self, recipient: &AudienceRecipient) -> ItemKey {
        let (run, asset, at) = (&self.run.id, &self.run.asset, self.scheduled_for);
        match run_channel(self.run) {
            DeliveryChannel::Email => ItemKey::for_email(run, &recipient.id, asset, at),
            DeliveryChannel::Voice => ItemKey::for_voice(run, &recipient.id, asset, at),
            DeliveryChannel::Social => {
                ItemKey::for_social_post(run, &recipient.id, &self.run.channel, at)
            }
        }
    }
}

/// Applies a change to the row of an item.
pub(crate) fn apply_change(
    mut row: OutboxItemRow,
    change: &ItemChange,
    channel: DeliveryChannel,
    now: Timestamp,
) -> OutboxItemRow {
    let ItemChange {
        new_state: to,
        sends: calls,
        reason,
        error,
        provider_message_id: message_id,
    } = change;
    if let Some(status) = to.status(channel) {
        row.status = status.as_str().into();
    }
    row.skipped = *to == ItemState::Skipped;
    row.calls = *calls;
    row.held_since = (*to == ItemState::Held).then_some(now);
    row.doubt_since = (*to == ItemState::InDoubt).then(|| row.doubt_since.unwrap_or(now));
    row.settled_at = to.is_terminal().then_some(now);
    row.reason = reason.map(|reason| reason.as_str().into());
    match to {
        // An accepted item keeps no error of earlier sends.
        ItemState::Served => row.error = None,
        _ => row.error = error.clone().or(row.error),
    }
    if message_id.is_some() {
        row.provider_message_id = message_id.clone();
    }
    row
}

pub(crate) fn run_channel(run: &CampaignRunRow) -> DeliveryChannel {
    DeliveryChannel::parse(&run.channel).unwrap_or(DeliveryChannel::Email)
}

pub(crate) fn job_status(job: &JobRow) -> JobStatus {
    JobStatus::parse(&job.status).unwrap_or(JobStatus::Queued)
}

/// The status after a transition that the caller knows to be legal. Panics if it is not.
pub(crate) fn next_job_status(status: JobStatus, act: JobTransition) -> JobStatus {
    let Some(next) = status.next_status(act) else {
        unreachable!("{act:?} is not for a job that is {status}")
    };
    next
}

pub(crate) fn run_status(run: &CampaignRunRow) -> CampaignRunStatus {
    CampaignRunStatus::parse(&run.status).unwrap_or(CampaignRunStatus::Queued)
}

/// The item counts stored in the row of a job.
pub(crate) fn job_counts(job: &JobRow) -> ItemCounts {
    ItemCounts {
        items: job.items.into(),
        served: job.served.into(),
        failed: job.failed.into(),
        skipped: job.skipped.into(),
        in_doubt: job.in_doubt.into(),
    }
}

/// Writes item counts into the row of a job, and since when it has items in doubt.
pub(crate) fn write_job_counts(job: &mut JobRow, tally: &ItemCounts, now: Timestamp) {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    job.served = number(tally.served);
    job.failed = number(tally.failed);
    job.skipped = number(tally.skipped);
    job.in_doubt = number(tally.in_doubt);
    job.doubt_since = if tally.in_doubt == 0 {
        Timestamp::MAX
    } else {
        job.doubt_since.min(now)
    };
}
