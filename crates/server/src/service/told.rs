//! Rows of campaigns as documents.

use onward_api::campaign::{CampaignSummary, CampaignTally, ChannelName, Control, Prerequisite, RunStatus};
use onward_api::outbox::{ItemStanding, Job, JobStatus, OutboxItem, Suppression};
use onward_dispatch::{Channel, Standing, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables;

pub(super) fn prerequisite(it: onward_campaign::Prerequisite) -> Prerequisite {
    Prerequisite { id: it.id, pass: it.pass, message: it.message }
}

pub(super) fn summary(row: &tables::CampaignRun) -> CampaignSummary {
    CampaignSummary {
        run: row.id.to_string(),
        campaign: row.campaign_id.to_string(),
        channel: channel(&row.channel),
        status: status(&row.status),
        control: control(&row.control),
        items: row.items,
        jobs: row.jobs,
        scheduled_for: row.scheduled_for.to_string(),
        created_at: row.created_at.to_string(),
        ended_at: at(row.ended_at),
        retry_of: text(row.retry_of.as_ref()),
    }
}

pub(super) const fn tally(tally: &Tally) -> CampaignTally {
    let Tally { served, failed, skipped, in_doubt, .. } = *tally;
    CampaignTally { served, failed, skipped, in_doubt, waiting: tally.open() }
}

pub(super) fn standing(row: &tables::OutboxItem) -> ItemStanding {
    match onward_dispatcher::standing(row) {
        Standing::Unreserved | Standing::Free => ItemStanding::Waiting,
        Standing::Held => ItemStanding::Held,
        Standing::InDoubt => ItemStanding::InDoubt,
        Standing::Served => ItemStanding::Served,
        Standing::Failed => ItemStanding::Failed,
        Standing::Skipped => ItemStanding::Skipped,
    }
}

pub(super) fn item(row: &tables::OutboxItem) -> OutboxItem {
    OutboxItem {
        item: row.id.to_string(),
        run: row.run_id.to_string(),
        job: row.job_id.to_string(),
        recipient: row.recipient_id.to_string(),
        to: row.recipient_address.to_string(),
        channel: channel(&row.channel),
        provider: row.provider.to_string(),
        key: row.idempotency_key.to_string(),
        standing: standing(row),
        status: row.status.to_string(),
        calls: row.calls,
        reason: text(row.reason.as_ref()),
        error: text(row.error.as_ref()),
        message_id: text(row.provider_message_id.as_ref()),
        doubt_since: at(row.doubt_since),
        created_at: row.created_at.to_string(),
        settled_at: at(row.settled_at),
    }
}

pub(super) fn job(row: &tables::Job) -> Job {
    let counted = Tally {
        items: row.items.into(),
        served: row.served.into(),
        failed: row.failed.into(),
        skipped: row.skipped.into(),
        in_doubt: row.in_doubt.into(),
    };
    Job {
        job: row.id.to_string(),
        run: row.run_id.to_string(),
        r#type: row.job_type.to_string(),
        status: job_status(&row.status),
        attempts: row.attempts,
        items: row.items,
        tally: tally(&counted),
        run_after: Some(row.run_after).filter(|at| *at != Timestamp::MAX).map(|at| at.to_string()),
        locked_until: at(row.locked_until),
        error: text(row.error.as_ref()),
        created_at: row.created_at.to_string(),
    }
}

pub(super) fn suppression(row: &tables::Suppression) -> Suppression {
    Suppression {
        channel: channel(&row.channel),
        address: row.address.to_string(),
        reason: row.reason.to_string(),
        created_at: row.created_at.to_string(),
    }
}

fn text(text: Option<&Text>) -> Option<String> {
    text.map(ToString::to_string)
}

fn at(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn channel(text: &str) -> ChannelName {
    match Channel::parse(text) {
        Some(Channel::Voice) => ChannelName::Voice,
        Some(Channel::Social) => ChannelName::Social,
        Some(Channel::Email) | None => ChannelName::Email,
    }
}

fn status(text: &str) -> RunStatus {
    match onward_dispatch::RunStatus::parse(text) {
        Some(onward_dispatch::RunStatus::Running) => RunStatus::Running,
        Some(onward_dispatch::RunStatus::Completed) => RunStatus::Completed,
        Some(onward_dispatch::RunStatus::Partial) => RunStatus::Partial,
        Some(onward_dispatch::RunStatus::Failed) => RunStatus::Failed,
        Some(onward_dispatch::RunStatus::Queued) | None => RunStatus::Queued,
    }
}

fn control(text: &str) -> Control {
    match onward_dispatch::Control::parse(text) {
        Some(onward_dispatch::Control::Paused) => Control::Paused,
        Some(onward_dispatch::Control::Cancelled) => Control::Cancelled,
        Some(onward_dispatch::Control::Active) | None => Control::Active,
    }
}

fn job_status(text: &str) -> JobStatus {
    match onward_dispatch::JobStatus::parse(text) {
        Some(onward_dispatch::JobStatus::Locked) => JobStatus::Locked,
        Some(onward_dispatch::JobStatus::Completed) => JobStatus::Completed,
        Some(onward_dispatch::JobStatus::Failed) => JobStatus::Failed,
        Some(onward_dispatch::JobStatus::Dead) => JobStatus::Dead,
        Some(onward_dispatch::JobStatus::Queued) | None => JobStatus::Queued,
    }
}
