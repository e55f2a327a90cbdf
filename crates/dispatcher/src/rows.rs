//! Rows, and what they stand for.

use onward_dispatch::{
    Change, Channel, ItemKey, ItemStatus, JobAct, JobStatus, Reason, RunStatus, Slot, Standing, Tally,
};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Error, Records as _, Scan, Store, Value};

use crate::audience::Recipient;

/// Where an item stands.
pub fn standing(row: &OutboxItem) -> Standing {
    let status = ItemStatus::parse(&row.status).unwrap_or(ItemStatus::Queued);
    Standing::of(status, row.held_since.is_some(), row.doubt_since.is_some())
}

/// An item as an attempt finds it at `now`.
pub(crate) fn slot(row: &OutboxItem, now: Timestamp) -> Slot {
    let doubt = row.doubt_since.map_or(0, |since| now.as_micros().saturating_sub(since.as_micros()) / 1_000);
    Slot {
        standing: standing(row),
        calls: row.calls,
        doubt_ms: u64::try_from(doubt).unwrap_or(0),
        reason: row.reason.as_deref().and_then(Reason::parse),
    }
}

/// The id of a job: those of a run come in their order.
pub(crate) fn job_id(run: &str, number: u32) -> Text {
    format!("{run}.{number:06}").into()
}

/// The id of an item: those of a job come in their order.
pub(crate) fn item_id(job: &str, position: usize) -> Text {
    format!("{job}.{position:04}").into()
}

/// Where an item stands in its job.
pub(crate) fn position(item: &str) -> Option<usize> {
    item.rsplit_once('.')?.1.parse().ok()
}

/// The job of an item.
pub(crate) fn job_of(item: &str) -> Option<Text> {
    item.rsplit_once('.').map(|(job, _)| job.into())
}

/// The items of a job that have rows, in their order.
pub(crate) async fn items(store: &dyn Store, job: &str) -> Result<Vec<(OutboxItem, u64)>, Error> {
    let mut scan = Scan::all::<OutboxItem>().until(&Text::from(format!("{job}.~")));
    let mut after = Text::from(format!("{job}."));
    let mut found = Vec::new();
    loop {
        scan.after = Some(vec![Value::Text(after)]);
        let page: Vec<(OutboxItem, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = last.id.clone();
        let is_last = page.len() < scan.limit;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}

/// What does not change about the items of a job.
pub(crate) struct Origin<'a> {
    pub(crate) run: &'a CampaignRun,
    pub(crate) job: &'a Job,
    pub(crate) provider: &'a Text,
    /// When the run was scheduled for, as keys have it.
    pub(crate) scheduled_for: &'a str,
}

impl Origin<'_> {
    /// The row of an item that has none, before anything has happened to it.
    pub(crate) fn item(&self, position: usize, recipient: &Recipient, now: Timestamp) -> OutboxItem {
        let Self { run, job, .. } = self;
        OutboxItem {
            id: item_id(&job.id, position),
            run_id: run.id.clone(),
            job_id: job.id.clone(),
            tenant_id: run.tenant_id.clone(),
            workspace_id: run.workspace_id.clone(),
            channel: run.channel.clone(),
            provider: self.provider.clone(),
            recipient_id: recipient.id.as_str().into(),
            recipient_address: recipient.address.as_str().into(),
            idempotency_key: self.key(recipient).to_string().into(),
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

    fn key(&self, recipient: &Recipient) -> ItemKey {
        let (run, asset, at) = (&self.run.id, &self.run.asset, self.scheduled_for);
        match channel(self.run) {
            Channel::Email => ItemKey::email(run, &recipient.id, asset, at),
            Channel::Voice => ItemKey::voice(run, &recipient.id, asset, at),
            Channel::Social => ItemKey::social(run, &recipient.id, &self.run.channel, at),
        }
    }
}

/// What a change makes of an item.
pub(crate) fn changed(mut row: OutboxItem, change: &Change, channel: Channel, now: Timestamp) -> OutboxItem {
    let Change { to, calls, reason, error, message_id } = change;
    if let Some(status) = to.status(channel) {
        row.status = status.as_str().into();
    }
    row.skipped = *to == Standing::Skipped;
    row.calls = *calls;
    row.held_since = (*to == Standing::Held).then_some(now);
    row.doubt_since = (*to == Standing::InDoubt).then(|| row.doubt_since.unwrap_or(now));
    row.settled_at = to.is_terminal().then_some(now);
    row.reason = reason.map(|reason| reason.as_str().into());
    match to {
        // What went wrong before is over.
        Standing::Served => row.error = None,
        _ => row.error = error.clone().or(row.error),
    }
    if message_id.is_some() {
        row.provider_message_id = message_id.clone();
    }
    row
}

pub(crate) fn channel(run: &CampaignRun) -> Channel {
    Channel::parse(&run.channel).unwrap_or(Channel::Email)
}

pub(crate) fn job_status(job: &Job) -> JobStatus {
    JobStatus::parse(&job.status).unwrap_or(JobStatus::Queued)
}

/// Where an act leads that is legal, or else a mistake of whoever asks.
pub(crate) fn after(status: JobStatus, act: JobAct) -> JobStatus {
    let Some(next) = status.after(act) else { unreachable!("{act:?} is not for a job that is {status}") };
    next
}

pub(crate) fn run_status(run: &CampaignRun) -> RunStatus {
    RunStatus::parse(&run.status).unwrap_or(RunStatus::Queued)
}

/// How the items of a job stand, as its row says.
pub(crate) fn tally(job: &Job) -> Tally {
    Tally {
        items: job.items.into(),
        served: job.served.into(),
        failed: job.failed.into(),
        skipped: job.skipped.into(),
        in_doubt: job.in_doubt.into(),
    }
}

/// Writes a tally into the row of a job.
pub(crate) fn count(job: &mut Job, tally: &Tally, now: Timestamp) {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    job.served = number(tally.served);
    job.failed = number(tally.failed);
    job.skipped = number(tally.skipped);
    job.in_doubt = number(tally.in_doubt);
    job.doubt_since = if tally.in_doubt == 0 { Timestamp::MAX } else { job.doubt_since.min(now) };
}
