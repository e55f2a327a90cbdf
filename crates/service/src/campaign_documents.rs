//! Converts the rows of campaign runs, jobs, items and suppressions, rendered messages and the
//! results of deployments to API documents.

use onward_api::campaign::{
    CampaignControl, CampaignItemCounts, CampaignRunSummary, CampaignStatus, ChannelName,
    DeployCampaignResponse, MessagePart, MessagePreview, PrerequisiteCheck,
};
use onward_api::outbox::{
    CampaignJob, CampaignJobStatus, OutboxItemState, OutboxItemView, SuppressionEntry,
};
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunStatus, DeliveryChannel, ItemCounts, ItemState, JobStatus,
};
use onward_campaign_dispatch::DeploymentResult;
use onward_campaign_file::TemplateComposer;
use onward_store::tables;

pub(super) fn api_prerequisite_check(
    it: onward_campaign_file::DeployPrerequisite,
) -> PrerequisiteCheck {
    PrerequisiteCheck {
        id: it.id,
        pass: it.pass,
        message: it.message,
    }
}

/// Renders the message of a recipient, or reports why it cannot be rendered.
pub fn preview_message(
    composer: &TemplateComposer,
    recipient: onward_campaign_core::AudienceRecipient,
) -> MessagePreview {
    let (parts, error) = match composer.render_message(&recipient) {
        Ok(message) => (message.parts, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let parts = parts
        .into_iter()
        .map(|(name, text)| MessagePart { name, text })
        .collect();
    MessagePreview {
        recipient: recipient.id,
        to: recipient.address,
        parts,
        error,
    }
}

/// Converts the result of a deployment or a retry. It carries no prerequisite checks.
pub(super) fn api_deployment(deployed: &DeploymentResult) -> DeployCampaignResponse {
    let DeploymentResult {
        run_id: run,
        already_existed: existed,
        items,
        jobs,
        excluded,
    } = deployed;
    let (run, prerequisites) = (run.to_string(), Vec::new());
    DeployCampaignResponse {
        run,
        existed: *existed,
        items: *items,
        jobs: *jobs,
        excluded: *excluded,
        prerequisites,
    }
}

pub(super) fn api_campaign_run_summary(row: &tables::CampaignRunRow) -> CampaignRunSummary {
    CampaignRunSummary {
        run: row.id.to_string(),
        campaign: row.campaign_id.to_string(),
        channel: api_channel_name(row.channel),
        status: api_campaign_status(row.status),
        control: api_campaign_control(row.control),
        items: row.items,
        jobs: row.jobs,
        scheduled_for: row.scheduled_for.to_string(),
        created_at: row.created_at.to_string(),
        ended_at: optional_time(row.ended_at),
        retry_of: optional_text(row.retry_of.as_ref()),
    }
}

pub(super) const fn api_item_counts(counts: &ItemCounts) -> CampaignItemCounts {
    let ItemCounts {
        sent,
        failed,
        skipped,
        in_doubt,
        ..
    } = *counts;
    CampaignItemCounts {
        sent,
        failed,
        skipped,
        in_doubt,
        waiting: counts.open_items(),
    }
}

pub(super) fn api_item_state(row: &tables::OutboxItemRow) -> OutboxItemState {
    match onward_campaign_dispatch::item_state(row) {
        ItemState::Unreserved | ItemState::Deferred => OutboxItemState::Waiting,
        ItemState::Reserved => OutboxItemState::Reserved,
        ItemState::InDoubt => OutboxItemState::InDoubt,
        ItemState::Sent => OutboxItemState::Sent,
        ItemState::Failed => OutboxItemState::Failed,
        ItemState::Skipped => OutboxItemState::Skipped,
    }
}

pub(super) fn api_outbox_item(row: &tables::OutboxItemRow) -> OutboxItemView {
    OutboxItemView {
        item: row.id.to_string(),
        run: row.run_id.to_string(),
        job: row.job_id.to_string(),
        recipient: row.recipient_id.to_string(),
        to: row.recipient_address.to_string(),
        channel: api_channel_name(row.channel),
        provider: row.provider.to_string(),
        key: row.idempotency_key.to_string(),
        state: api_item_state(row),
        status: row.status.to_string(),
        sends: row.sends,
        reason: row.reason.map(|reason| reason.to_string()),
        error: optional_text(row.error.as_ref()),
        message_id: optional_text(row.provider_message_id.as_ref()),
        in_doubt_since: optional_time(row.in_doubt_since),
        created_at: row.created_at.to_string(),
        settled_at: optional_time(row.settled_at),
    }
}

pub(super) fn api_campaign_job(row: &tables::JobRow) -> CampaignJob {
    let counts = ItemCounts {
        items: row.items.into(),
        sent: row.sent.into(),
        failed: row.failed.into(),
        skipped: row.skipped.into(),
        in_doubt: row.in_doubt.into(),
    };
    CampaignJob {
        job: row.id.to_string(),
        run: row.run_id.to_string(),
        r#type: row.job_type.to_string(),
        status: api_job_status(row.status),
        attempts: row.attempts,
        claims: row.lock_epoch,
        items: row.items,
        counts: api_item_counts(&counts),
        run_after: Some(row.run_after)
            .filter(|at| *at != Timestamp::MAX)
            .map(|at| at.to_string()),
        locked_until: optional_time(row.locked_until),
        error: optional_text(row.error.as_ref()),
        created_at: row.created_at.to_string(),
    }
}

pub(super) fn api_suppression_entry(row: &tables::SuppressionRow) -> SuppressionEntry {
    SuppressionEntry {
        channel: api_channel_name(row.channel),
        address: row.address.to_string(),
        reason: row.reason.to_string(),
        created_at: row.created_at.to_string(),
    }
}

fn optional_text(text: Option<&SharedText>) -> Option<String> {
    text.map(ToString::to_string)
}

fn optional_time(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

const fn api_channel_name(channel: DeliveryChannel) -> ChannelName {
    match channel {
        DeliveryChannel::Email => ChannelName::Email,
        DeliveryChannel::Voice => ChannelName::Voice,
        DeliveryChannel::Social => ChannelName::Social,
    }
}

/// The channel of the campaign core that a request names.
pub(super) const fn delivery_channel(channel: ChannelName) -> DeliveryChannel {
    match channel {
        ChannelName::Email => DeliveryChannel::Email,
        ChannelName::Voice => DeliveryChannel::Voice,
        ChannelName::Social => DeliveryChannel::Social,
    }
}

const fn api_campaign_status(status: CampaignRunStatus) -> CampaignStatus {
    match status {
        CampaignRunStatus::Queued => CampaignStatus::Queued,
        CampaignRunStatus::Running => CampaignStatus::Running,
        CampaignRunStatus::Completed => CampaignStatus::Completed,
        CampaignRunStatus::Partial => CampaignStatus::Partial,
        CampaignRunStatus::Failed => CampaignStatus::Failed,
    }
}

/// The run status of the campaign core that a request names.
pub(super) const fn campaign_run_status(status: CampaignStatus) -> CampaignRunStatus {
    match status {
        CampaignStatus::Queued => CampaignRunStatus::Queued,
        CampaignStatus::Running => CampaignRunStatus::Running,
        CampaignStatus::Completed => CampaignRunStatus::Completed,
        CampaignStatus::Partial => CampaignRunStatus::Partial,
        CampaignStatus::Failed => CampaignRunStatus::Failed,
    }
}

const fn api_campaign_control(control: CampaignRunControl) -> CampaignControl {
    match control {
        CampaignRunControl::Active => CampaignControl::Active,
        CampaignRunControl::Paused => CampaignControl::Paused,
        CampaignRunControl::Cancelled => CampaignControl::Cancelled,
    }
}

const fn api_job_status(status: JobStatus) -> CampaignJobStatus {
    match status {
        JobStatus::Queued => CampaignJobStatus::Queued,
        JobStatus::Locked => CampaignJobStatus::Locked,
        JobStatus::Completed => CampaignJobStatus::Completed,
        JobStatus::Failed => CampaignJobStatus::Failed,
        JobStatus::Dead => CampaignJobStatus::Dead,
    }
}

/// The job status of the campaign core that a request names.
pub(super) const fn job_status(status: CampaignJobStatus) -> JobStatus {
    match status {
        CampaignJobStatus::Queued => JobStatus::Queued,
        CampaignJobStatus::Locked => JobStatus::Locked,
        CampaignJobStatus::Completed => JobStatus::Completed,
        CampaignJobStatus::Failed => JobStatus::Failed,
        CampaignJobStatus::Dead => JobStatus::Dead,
    }
}
