//! Campaign runs, jobs, outbox items and their audit trail, who is to be reached, and who is not. The database itself refuses
//! statuses that do not exist.

use std::sync::Arc;

use onward_base::{SharedText, Timestamp};

use crate::{SerialId, define_table};

define_table! {
    /// One execution of a campaign.
    "campaign_runs", key 1,
    unique ["tenant_id", "workspace_id", "campaign_id", "ordinal"],
    index BY_CAMPAIGN ["campaign_id", "created_at"]
        BY_ORDINAL ["tenant_id", "workspace_id", "campaign_id", "ordinal"]
        BY_AGE ["tenant_id", "workspace_id", "created_at"]
        BY_WAKE ["wake_at"]
        BY_AUDIENCE ["audience_id"];
    pub struct CampaignRunRow {
        /// The campaign run.
        pub id: SharedText = "id",
        /// The campaign.
        pub campaign_id: SharedText = "campaign_id",
        /// Whose it is.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// Which run of the campaign, from 1 on: of two that are made at the same moment, one is refused.
        pub ordinal: u32 = "ordinal",
        /// `email`, `voice` or `social`.
        pub channel: SharedText = "channel",
        /// `queued`, `running`, `completed`, `partial` or `failed`.
        pub status: SharedText = "status",
        /// What people want of it: `active`, `paused` or `cancelled`.
        pub control: SharedText = "control",
        /// The campaign as it was deployed, as JSON.
        pub document: SharedText = "document",
        /// Whom it is to reach.
        pub audience_id: SharedText = "audience_id",
        /// A digest of those it was deployed for, the ones among them who were left out.
        pub audience_digest: SharedText = "audience_digest",
        /// How many it is to reach.
        pub items: u32 = "items",
        /// In how many jobs.
        pub jobs: u32 = "jobs",
        /// Not before. It is part of the keys of its items, and never changes.
        pub scheduled_for: Timestamp = "scheduled_for",
        /// What is sent, for the keys of its items: the same recipient may be sent something else. It never changes either.
        pub asset: SharedText = "asset",
        /// The campaign run whose unserved recipients it is to reach.
        pub retry_of: Option<SharedText> = "retry_of",
        /// When there is something to do; never while it is paused, or over.
        pub wake_at: Timestamp = "wake_at",
        /// When it was deployed.
        pub created_at: Timestamp = "created_at",
        /// When it was over.
        pub ended_at: Option<Timestamp> = "ended_at",
    }
}

define_table! {
    /// A batch of items of a campaign run, for one worker.
    "job_queue", key 1,
    index BY_TURN ["run_id", "status", "run_after"]
        BY_STATUS ["status", "run_after"]
        BY_TENANT ["tenant_id", "status", "run_after"]
        BY_DOUBT ["tenant_id", "workspace_id", "doubt_since"];
    pub struct JobRow {
        /// The job.
        pub id: SharedText = "id",
        /// The campaign run.
        pub run_id: SharedText = "run_id",
        /// Whose it is.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// `email_send_batch`, `voice_call_batch` or `social_post_batch`.
        pub job_type: SharedText = "job_type",
        /// `queued`, `locked`, `completed`, `failed` or `dead`.
        pub status: SharedText = "status",
        /// Tries since anything was settled.
        pub attempts: u32 = "attempts",
        /// Not before; of a locked job, until when a worker holds it.
        pub run_after: Timestamp = "run_after",
        /// Until when a worker holds it.
        pub locked_until: Option<Timestamp> = "locked_until",
        /// What that worker shows to finish it.
        pub lock_token: Option<SharedText> = "lock_token",
        /// How often it was locked.
        pub lock_epoch: u32 = "lock_epoch",
        /// Which part of the audience it is to reach.
        pub number: u32 = "number",
        /// How many those are.
        pub items: u32 = "items",
        /// How many of them the provider has taken.
        pub served: u32 = "served",
        /// How many were not delivered.
        pub failed: u32 = "failed",
        /// How many were not to be delivered.
        pub skipped: u32 = "skipped",
        /// Of how many nobody knows.
        pub in_doubt: u32 = "in_doubt",
        /// Since when; never if of none.
        pub doubt_since: Timestamp = "doubt_since",
        /// What went wrong last, for people.
        pub error: Option<SharedText> = "error",
        /// When it was made.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// One call of a provider: reserved before, settled after.
    "channel_outbox", key 1,
    unique ["tenant_id", "workspace_id", "idempotency_key"],
    index BY_RUN ["run_id", "id"];
    pub struct OutboxItemRow {
        /// The item: its job, and its position there.
        pub id: SharedText = "id",
        /// The campaign run.
        pub run_id: SharedText = "run_id",
        /// The job.
        pub job_id: SharedText = "job_id",
        /// Whose it is.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// `email`, `voice` or `social`.
        pub channel: SharedText = "channel",
        /// Who really sends.
        pub provider: SharedText = "provider",
        /// To whom.
        pub recipient_id: SharedText = "recipient_id",
        /// Where that is.
        pub recipient_address: SharedText = "recipient_address",
        /// What makes calling the provider again a repetition.
        pub idempotency_key: SharedText = "idempotency_key",
        /// `queued`, `sent`, `called`, `posted`, `failed` or `skipped`.
        pub status: SharedText = "status",
        /// Whether it was skipped, which its status says as well.
        pub skipped: bool = "skipped",
        /// How often the provider was called, without those calls that it took nothing by.
        pub calls: u32 = "calls",
        /// Since when whoever has the job may be calling the provider.
        pub held_since: Option<Timestamp> = "held_since",
        /// Since when nobody knows whether the provider was reached.
        pub doubt_since: Option<Timestamp> = "doubt_since",
        /// What the provider calls it.
        pub provider_message_id: Option<SharedText> = "provider_message_id",
        /// Why it was skipped, or failed: one of a few words.
        pub reason: Option<SharedText> = "reason",
        /// What went wrong, for people.
        pub error: Option<SharedText> = "error",
        /// What was sent, as JSON.
        pub payload: Option<SharedText> = "payload",
        /// When it was reserved.
        pub created_at: Timestamp = "created_at",
        /// When it was settled.
        pub settled_at: Option<Timestamp> = "settled_at",
    }
}

define_table! {
    /// What happened to a campaign run, for the record.
    "campaign_audit_log", key 1,
    index BY_RUN ["run_id", "entry_id"];
    pub struct AuditEntryRow {
        /// Its place.
        pub entry_id: SerialId = "entry_id",
        /// The campaign run.
        pub run_id: SharedText = "run_id",
        /// Whose it is.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// What happened.
        pub event: SharedText = "event",
        /// The particulars, as JSON.
        pub detail: Option<SharedText> = "detail",
        /// When.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// A part of those whom a campaign run is to reach.
    "campaign_audience", key 2;
    pub struct AudiencePartRow {
        /// The audience.
        pub audience_id: SharedText = "audience_id",
        /// Which part.
        pub number: u32 = "number",
        /// Whose it is.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// How many recipients it has.
        pub items: u32 = "items",
        /// The recipients, as JSON.
        pub recipients: Arc<[u8]> = "recipients",
        /// When it was stored.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// Somebody who wants nothing more.
    "suppressions", key 4;
    pub struct SuppressionRow {
        /// Of whom.
        pub tenant_id: SharedText = "tenant_id",
        /// In which workspace.
        pub workspace_id: SharedText = "workspace_id",
        /// By which channel.
        pub channel: SharedText = "channel",
        /// Where they are reached.
        pub address: SharedText = "address",
        /// Why.
        pub reason: SharedText = "reason",
        /// Since when.
        pub created_at: Timestamp = "created_at",
    }
}
