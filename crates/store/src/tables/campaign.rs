//! Tables of campaigns: campaign runs, jobs, outbox items, the audit log, audiences and the
//! suppression list.
//!
//! Statuses, channels, controls and reasons are enums: a row with an unknown word is corrupt. Some
//! columns have older names than their fields, because the schema predates the fields.

use std::sync::Arc;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunStatus, DeliveryChannel, ItemReason, ItemStatus, JobStatus,
    JobType,
};

use crate::{SerialId, define_table};

define_table! {
    /// A campaign run: one execution of a campaign.
    "campaign_runs", key 1,
    unique ["tenant_id", "workspace_id", "campaign_id", "ordinal"],
    index BY_CAMPAIGN ["campaign_id", "created_at"]
        BY_ORDINAL ["tenant_id", "workspace_id", "campaign_id", "ordinal"]
        BY_AGE ["tenant_id", "workspace_id", "created_at"]
        BY_WAKE ["wake_at"]
        BY_AUDIENCE ["audience_id"];
    pub struct CampaignRunRow {
        /// Id of the campaign run.
        pub id: SharedText = "id",
        /// The campaign that this run executes.
        pub campaign_id: SharedText = "campaign_id",
        /// The tenant that owns the campaign run.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace of the campaign run.
        pub workspace_id: SharedText = "workspace_id",
        /// Number of the run within its campaign, from 1. It is unique there: if two runs are
        /// created at the same moment, the store rejects one.
        pub ordinal: u32 = "ordinal",
        /// The channel that delivers the messages.
        pub channel: DeliveryChannel = "channel",
        /// The status of the run.
        pub status: CampaignRunStatus = "status",
        /// The control that an operator has set.
        pub control: CampaignRunControl = "control",
        /// The campaign as deployed, as JSON.
        pub document: SharedText = "document",
        /// The audience: the recipients that the run sends to.
        pub audience_id: SharedText = "audience_id",
        /// Digest of the recipients that the run was deployed for, including those that were
        /// excluded.
        pub audience_digest: SharedText = "audience_digest",
        /// Number of recipients in the audience, one item each.
        pub items: u32 = "items",
        /// Number of jobs that the items are split into.
        pub jobs: u32 = "jobs",
        /// Earliest time of the first send. It is part of the idempotency keys of the items and
        /// never changes.
        pub scheduled_for: Timestamp = "scheduled_for",
        /// Identifies the content to send. It is part of the idempotency keys of the items, so that
        /// the same recipient can receive other content, and never changes.
        pub asset: SharedText = "asset",
        /// The campaign run that this run retries: it sends to the recipients that the other run
        /// did not reach. `None` for a run that is not a retry.
        pub retry_of: Option<SharedText> = "retry_of",
        /// When the run next has work to do; `Timestamp::MAX` while it is paused and after its end.
        pub wake_at: Timestamp = "wake_at",
        /// When the run was deployed.
        pub created_at: Timestamp = "created_at",
        /// When the run ended; `None` until then.
        pub ended_at: Option<Timestamp> = "ended_at",
    }
}

define_table! {
    /// A job: a batch of items of a campaign run, processed by one worker.
    "job_queue", key 1,
    index BY_TURN ["run_id", "status", "run_after"]
        BY_STATUS ["status", "run_after"]
        BY_TENANT ["tenant_id", "status", "run_after"]
        BY_DOUBT ["tenant_id", "workspace_id", "doubt_since"];
    pub struct JobRow {
        /// Id of the job.
        pub id: SharedText = "id",
        /// The campaign run that the job belongs to.
        pub run_id: SharedText = "run_id",
        /// The tenant that owns the job.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace of the job.
        pub workspace_id: SharedText = "workspace_id",
        /// The type of the job, which follows from the channel of the run.
        pub job_type: JobType = "job_type",
        /// The status of the job.
        pub status: JobStatus = "status",
        /// Number of attempts since an item was last settled.
        pub attempts: u32 = "attempts",
        /// Earliest time of the next attempt. For a locked job, when the worker's lease expires.
        pub run_after: Timestamp = "run_after",
        /// When the worker's lease expires; `None` while no worker holds the job.
        pub locked_until: Option<Timestamp> = "locked_until",
        /// Claim token that the worker must present to finish the job; `None` while no worker holds
        /// it.
        pub lock_token: Option<SharedText> = "lock_token",
        /// Number of times a worker has locked the job.
        pub lock_epoch: u32 = "lock_epoch",
        /// Number of the audience part that the job sends to.
        pub number: u32 = "number",
        /// Number of recipients in that part.
        pub items: u32 = "items",
        /// Number of items that the provider accepted.
        pub sent: u32 = "served",
        /// Number of items that were not delivered.
        pub failed: u32 = "failed",
        /// Number of items that were skipped on purpose.
        pub skipped: u32 = "skipped",
        /// Number of items in doubt: it is unknown whether the provider received them.
        pub in_doubt: u32 = "in_doubt",
        /// Since when the job has items in doubt; `Timestamp::MAX` if it has none.
        pub in_doubt_since: Timestamp = "doubt_since",
        /// The last error, for display.
        pub error: Option<SharedText> = "error",
        /// When the job was created.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// An outbox item: one send to a provider, reserved before the call and settled after it.
    "channel_outbox", key 1,
    unique ["tenant_id", "workspace_id", "idempotency_key"],
    index BY_RUN ["run_id", "id"];
    pub struct OutboxItemRow {
        /// Id of the item: its job and its position in the job.
        pub id: SharedText = "id",
        /// The campaign run that the item belongs to.
        pub run_id: SharedText = "run_id",
        /// The job that the item belongs to.
        pub job_id: SharedText = "job_id",
        /// The tenant that owns the item.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace of the item.
        pub workspace_id: SharedText = "workspace_id",
        /// The channel that delivers the message.
        pub channel: DeliveryChannel = "channel",
        /// The provider that delivers the message.
        pub provider: SharedText = "provider",
        /// Id of the recipient.
        pub recipient_id: SharedText = "recipient_id",
        /// Address of the recipient on the channel.
        pub recipient_address: SharedText = "recipient_address",
        /// Idempotency key of the item: equal on every call to the provider, unique in the
        /// workspace.
        pub idempotency_key: SharedText = "idempotency_key",
        /// The status of the item.
        pub status: ItemStatus = "status",
        /// Whether the item was skipped; redundant with `status`.
        pub skipped: bool = "skipped",
        /// Number of sends to the provider, without those that the provider throttled.
        pub sends: u32 = "calls",
        /// Since when the item is reserved, so that the worker that holds the job may be calling
        /// the provider; `None` if no call can be in progress.
        pub reserved_since: Option<Timestamp> = "held_since",
        /// Since when the item is in doubt: it is unknown whether the call reached the provider.
        /// `None` if it is not.
        pub in_doubt_since: Option<Timestamp> = "doubt_since",
        /// Message id that the provider assigned.
        pub provider_message_id: Option<SharedText> = "provider_message_id",
        /// The reason why the item was skipped or failed; `None` for every other item.
        pub reason: Option<ItemReason> = "reason",
        /// The error, for display.
        pub error: Option<SharedText> = "error",
        /// The content that was sent, as JSON.
        pub payload: Option<SharedText> = "payload",
        /// When the item was reserved.
        pub created_at: Timestamp = "created_at",
        /// When the item was settled; `None` until then.
        pub settled_at: Option<Timestamp> = "settled_at",
    }
}

define_table! {
    /// An entry in the audit log of a campaign run.
    "campaign_audit_log", key 1,
    index BY_RUN ["run_id", "entry_id"];
    pub struct AuditEntryRow {
        /// Position in the log, assigned by the store.
        pub entry_id: SerialId = "entry_id",
        /// The campaign run that the entry is about.
        pub run_id: SharedText = "run_id",
        /// The tenant that owns the campaign run.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace of the campaign run.
        pub workspace_id: SharedText = "workspace_id",
        /// Name of the event, such as `run.deployed`.
        pub event: SharedText = "event",
        /// Details of the event, as JSON.
        pub detail: Option<SharedText> = "detail",
        /// When the event happened.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// One part of an audience: the recipients of one job.
    "campaign_audience", key 2;
    pub struct AudiencePartRow {
        /// The audience that the part belongs to.
        pub audience_id: SharedText = "audience_id",
        /// Number of the part within the audience.
        pub number: u32 = "number",
        /// The tenant that owns the audience.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace of the audience.
        pub workspace_id: SharedText = "workspace_id",
        /// Number of recipients in the part.
        pub items: u32 = "items",
        /// The recipients, as JSON.
        pub recipients: Arc<[u8]> = "recipients",
        /// When the part was stored.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// An entry of the suppression list: an address that must not receive further messages.
    "suppressions", key 4;
    pub struct SuppressionRow {
        /// The tenant that must not send to the address.
        pub tenant_id: SharedText = "tenant_id",
        /// The workspace that the suppression applies to.
        pub workspace_id: SharedText = "workspace_id",
        /// The channel that the suppression applies to.
        pub channel: DeliveryChannel = "channel",
        /// The suppressed address on that channel.
        pub address: SharedText = "address",
        /// Why the address is suppressed.
        pub reason: SharedText = "reason",
        /// When the address was added to the list.
        pub created_at: Timestamp = "created_at",
    }
}
