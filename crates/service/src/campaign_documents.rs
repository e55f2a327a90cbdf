//! Converts the rows of campaign runs, jobs, items and suppressions, rendered messages and the
//! results of deployments to API documents.

use onward_api::campaign::{
    CampaignControl, CampaignRunSummary, CampaignStatus, CampaignTally, ChannelName,
    DeployCampaignResponse, MessagePart, MessagePreview, PrerequisiteCheck,
};
use onward_api::outbox::{
    CampaignJob, CampaignJobStatus, OutboxItemState, OutboxItemView, SuppressionEntry,
};
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{DeliveryChannel, ItemCounts, ItemState};
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
    let (parts, error) = match composer.preview_message(&recipient) {
        Ok(message) => (message.parts, None),
        Err(error) => (Vec::new(), Some(error)),
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
        excluded: left_out,
    } = deployed;
    let (run, prerequisites) = (run.to_string(), Vec::new());
    DeployCampaignResponse {
        run,
        existed: *existed,
        items: *items,
        jobs: *jobs,
        left_out: *left_out,
        prerequisites,
    }
}

pub(super) fn api_campaign_run_summary(row: &tables::CampaignRunRow) -> CampaignRunSummary {
    CampaignRunSummary {
        run: row.id.to_string(),
        campaign: row.campaign_id.to_string(),
        channel: api_channel_name(&row.channel),
        status: api_campaign_status(&row.status),
        control: api_campaign_control(&row.control),
        items: row.items,
        jobs: row.jobs,
        scheduled_for: row.scheduled_for.to_string(),
        created_at: row.created_at.to_string(),
        ended_at: optional_time(row.ended_at),
        retry_of: optional_text(row.retry_of.as_ref()),
    }
}

pub(super) const fn api_campaign_tally(tally: &ItemCounts) -> CampaignTally {
    let ItemCounts {
        served,
        failed,
        skipped,
        in_doubt,
        ..
    } = *tally;
    CampaignTally {
        served,
        failed,
        skipped,
        in_doubt,
        waiting: tally.open_items(),
    }
}

pub(super) fn api_item_state(row: &tables::OutboxItemRow) -> OutboxItemState {
    match onward_campaign_dispatch::item_state(row) {
        ItemState::Unreserved | ItemState::Deferred => OutboxItemState::Waiting,
        ItemState::Held => OutboxItemState::Held,
        ItemState::InDoubt => OutboxItemState::InDoubt,
        ItemState::Served => OutboxItemState::Served,
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
        channel: api_channel_name(&row.channel),
        provider: row.provider.to_string(),
        key: row.idempotency_key.to_string(),
        standing: api_item_state(row),
        status: row.status.to_string(),
        calls: row.calls,
        reason: optional_text(row.reason.as_ref()),
        error: optional_text(row.error.as_ref()),
        message_id: optional_text(row.provider_message_id.as_ref()),
        doubt_since: optional_time(row.doubt_since),
        created_at: row.created_at.to_string(),
        settled_at: optional_time(row.settled_at),
    }
}

pub(super) fn api_campaign_job(row: &tables::JobRow) -> CampaignJob {
    let counted = ItemCounts {
        items: row.items.into(),
        served: row.served.into(),
        failed: row.failed.into(),
        skipped: row.skipped.into(),
        in_doubt: row.in_doubt.into(),
    };
    CampaignJob {
        job: row.id.to_string(),
        run: row.run_id.to_string(),
        r#type: row.job_type.to_string(),
        status: api_job_status(&row.status),
        attempts: row.attempts,
        items: row.items,
        tally: api_campaign_tally(&counted),
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
        channel: api_channel_name(&row.channel),
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

fn api_channel_name(text: &str) -> ChannelName {
    match DeliveryChannel::parse(text) {
        Some(DeliveryChannel::Voice) => ChannelName::Voice,
        Some(DeliveryChannel::Social) => ChannelName::Social,
        Some(DeliveryChannel::Email) | None => ChannelName::Email,
    }
}

fn api_campaign_status(text: &str) -> CampaignStatus {
    match onward_campaign_core::CampaignRunStatus::parse(text) {
        Some(onward_campaign_core::CampaignRunStatus::Running) => CampaignStatus::Running,
        Some(onward_campaign_core::CampaignRunStatus::Completed) => CampaignStatus::Completed,
        Some(onward_campaign_core::CampaignRunStatus::Partial) => CampaignStatus::Partial,
        Some(onward_campaign_core::CampaignRunStatus::Failed) => CampaignStatus::Failed,
        Some(onward_campaign_core::CampaignRunStatus::Queued) | None => CampaignStatus::Queued,
    }
}

fn api_campaign_control(text: &str) -> CampaignControl {
    match onward_campaign_core::CampaignRunControl::parse(text) {
        Some(onward_campaign_core::CampaignRunControl::Paused) => CampaignControl::Paused,
        Some(onward_campaign_core::CampaignRunControl::Cancelled) => CampaignControl::Cancelled,
        Some(onward_campaign_core::CampaignRunControl::Active) | None => CampaignControl::Active,
    }
}

fn api_job_status(text: &str) -> CampaignJobStatus {
    match onward_campaign_core::JobStatus::parse(text) {
        Some(onward_campaign_core::JobStatus::Locked) => CampaignJobStatus::Locked,
        Some(onward_campaign_core::JobStatus::Completed) => CampaignJobStatus::Completed,
        Some(onward_campaign_core::JobStatus::Failed) => CampaignJobStatus::Failed,
        Some(onward_campaign_core::JobStatus::Dead) => CampaignJobStatus::Dead,
        Some(onward_campaign_core::JobStatus::Queued) | None => CampaignJobStatus::Queued,
    }
}
