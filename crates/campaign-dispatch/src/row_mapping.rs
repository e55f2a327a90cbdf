//! Converts between the rows of the store and the types of `onward-campaign-core`.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, DeliveryChannel, ItemChange, ItemCounts, ItemKey, ItemProgress, ItemState,
    ItemStatus, JobStatus, JobTransition, QueuedItemState,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnValue, Error, RecordReader as _, Store, TableScan};

/// The state of the item in this row.
pub fn item_state(row: &OutboxItemRow) -> ItemState {
    let queued = match (row.in_doubt_since, row.reserved_since) {
        (Some(_), _) => QueuedItemState::InDoubt,
        (None, Some(_)) => QueuedItemState::Reserved,
        (None, None) => QueuedItemState::Deferred,
    };
    ItemState::from_status(row.status, queued)
}

/// The progress of an item as an attempt at the time `now` reads it.
pub(crate) fn item_progress(row: &OutboxItemRow, now: Timestamp) -> ItemProgress {
    let ms_since = |since: Timestamp| {
        let micros = now.as_micros().saturating_sub(since.as_micros());
        u64::try_from(micros / 1_000).unwrap_or(0)
    };
    ItemProgress {
        state: item_state(row),
        sends: row.sends,
        in_doubt_ms: row.in_doubt_since.map_or(0, ms_since),
        age_ms: ms_since(row.created_at),
        reason: row.reason,
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

/// The position of a stored item in its job of `item_count` items. Fails if its id is malformed or
/// beyond the end of the job.
pub(crate) fn row_position(row: &OutboxItemRow, item_count: usize) -> Result<usize, Error> {
    item_position(&row.id)
        .filter(|position| *position < item_count)
        .ok_or_else(|| {
            Error::corrupt(format!(
                "outbox item {} has no position in its job of {item_count} items",
                row.id
            ))
        })
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
    let mut items = Vec::new();
    loop {
        scan.after = Some(vec![ColumnValue::Text(after)]);
        let page: Vec<(OutboxItemRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(items);
        };
        after = last.id.clone();
        let is_last = page.len() < scan.limit;
        items.extend(page);
        if is_last {
            return Ok(items);
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
            channel: run.channel,
            provider: self.provider.clone(),
            recipient_id: recipient.id.as_str().into(),
            recipient_address: recipient.address.as_str().into(),
            idempotency_key: self.item_key(recipient).to_string().into(),
            status: ItemStatus::Queued,
            skipped: false,
            sends: 0,
            reserved_since: None,
            in_doubt_since: None,
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
        match self.run.channel {
            DeliveryChannel::Email => ItemKey::for_email(run, &recipient.id, asset, at),
            DeliveryChannel::Voice => ItemKey::for_voice(run, &recipient.id, asset, at),
            DeliveryChannel::Social => {
                ItemKey::for_social_post(run, &recipient.id, self.run.channel.as_str(), at)
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
        new_state,
        sends,
        reason,
        error,
        provider_message_id,
    } = change;
    if let Some(status) = new_state.status(channel) {
        row.status = status;
    }
    row.skipped = *new_state == ItemState::Skipped;
    row.sends = *sends;
    row.reserved_since = (*new_state == ItemState::Reserved).then_some(now);
    row.in_doubt_since =
        (*new_state == ItemState::InDoubt).then(|| row.in_doubt_since.unwrap_or(now));
    row.settled_at = new_state.is_terminal().then_some(now);
    row.reason = *reason;
    row.error = match new_state {
        // An accepted item keeps no error of earlier sends.
        ItemState::Sent => None,
        _ => error.clone().or(row.error),
    };
    if provider_message_id.is_some() {
        row.provider_message_id = provider_message_id.clone();
    }
    row
}

/// The status of a job after a transition. Fails if the status in the row does not allow it.
pub(crate) fn next_job_status(
    job: &JobRow,
    status: JobStatus,
    transition: JobTransition,
) -> Result<JobStatus, Error> {
    status.next_status(transition).ok_or_else(|| {
        Error::corrupt(format!(
            "job {} is {status}, which does not allow the transition {transition:?}",
            job.id
        ))
    })
}

/// The item counts stored in the row of a job.
pub(crate) fn job_counts(job: &JobRow) -> ItemCounts {
    ItemCounts {
        items: job.items.into(),
        sent: job.sent.into(),
        failed: job.failed.into(),
        skipped: job.skipped.into(),
        in_doubt: job.in_doubt.into(),
    }
}

/// Writes item counts into the row of a job, and since when it has items in doubt.
pub(crate) fn write_job_counts(job: &mut JobRow, counts: &ItemCounts, now: Timestamp) {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    job.sent = number(counts.sent);
    job.failed = number(counts.failed);
    job.skipped = number(counts.skipped);
    job.in_doubt = number(counts.in_doubt);
    job.in_doubt_since = if counts.in_doubt == 0 {
        Timestamp::MAX
    } else {
        job.in_doubt_since.min(now)
    };
}
