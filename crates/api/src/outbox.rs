//! Wire types for dispatch: outbox items, the jobs that contain them, and the suppression list.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::campaign::{CampaignItemCounts, ChannelName};
use crate::problem::Code;

/// The delivery state of an outbox item. It distinguishes states that all have the status `queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutboxItemState {
    /// The item is still to be delivered: it is not reserved yet, or the provider has not accepted
    /// it so far.
    Waiting,
    /// A dispatcher has reserved the item and may be calling the provider now.
    Reserved,
    /// The provider has accepted the item.
    Sent,
    /// The item was not delivered and will not be.
    Failed,
    /// The item was not to be delivered.
    Skipped,
    /// It is unknown whether the provider has accepted the item.
    InDoubt,
}

impl OutboxItemState {
    /// The state as it appears in JSON and in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Reserved => "reserved",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::InDoubt => "in-doubt",
        }
    }
}

/// Filter and page of a list of outbox items.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListOutboxItemsQuery {
    /// The campaign run whose items are listed; required.
    pub run: String,
    /// Returns only items in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<OutboxItemState>,
    /// Returns only items for the recipient with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Maximum number of items to return; default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Page of the list of items in doubt.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListInDoubtItemsQuery {
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// Approximate number of items to return; default: 100. A page may have more, because the items
    /// of a job are never split between pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One outbox item: one message to one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxItemView {
    /// The id of the item.
    pub item: String,
    /// The campaign run that the item belongs to.
    pub run: String,
    /// The job that the item belongs to.
    pub job: String,
    /// The id of the recipient.
    pub recipient: String,
    /// The address of the recipient.
    pub to: String,
    /// The channel by which the recipient is reached.
    pub channel: ChannelName,
    /// The provider that delivers the message.
    pub provider: String,
    /// Idempotency key of the item, sent to the provider so that it can deduplicate repeated calls.
    pub key: String,
    /// The delivery state of the item.
    pub state: OutboxItemState,
    /// The stored status: `queued`, `sent`, `called`, `posted`, `failed` or `skipped`.
    pub status: String,
    /// How many times the provider was called for this item, without calls that did not reach it
    /// or that it throttled. More than one call has the same idempotency key.
    pub sends: u32,
    /// Why the item was skipped or failed: one of a fixed set of codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The error message of a failure, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The id that the provider gave the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Since when the item is in doubt (RFC 3339); absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt_since: Option<String>,
    /// When the item was reserved (RFC 3339).
    pub created_at: String,
    /// When the item was settled (RFC 3339); absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
}

/// One page of a list of outbox items.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OutboxItemPage {
    /// The items of this page.
    pub items: Vec<OutboxItemView>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The outcome of an item in doubt, as an operator has determined it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemResolution {
    /// The provider has accepted the item.
    Sent,
    /// The item was not delivered and will not be.
    Failed,
    /// The item was not delivered and is to be sent again.
    Resend,
}

/// Request to settle one item in doubt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleItemRequest {
    /// The outcome of the item.
    pub resolution: ItemResolution,
    /// How the outcome was determined; required, recorded in the audit trail.
    #[schema(min_length = 1, max_length = 1024)]
    pub reason: String,
    /// The id that the provider gave the message, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub message_id: Option<String>,
    /// The person who settles the item, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// Request to settle many items in doubt with the same outcome.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleItemsRequest {
    /// The ids of the items; 1 to 1000. Items of the same job are settled together or not at all.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<String>,
    /// The outcome of all these items.
    pub resolution: ItemResolution,
    /// How the outcome was determined; required, recorded in the audit trail.
    #[schema(min_length = 1, max_length = 1024)]
    pub reason: String,
    /// The person who settles the items, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// The result of settling many items.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettleItemsResponse {
    /// The items that are now settled.
    pub settled: Vec<OutboxItemView>,
    /// The items that could not be settled, with the reason.
    pub rejected: Vec<UnsettledItem>,
}

/// An item that could not be settled.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UnsettledItem {
    /// The id of the item, as given in the request.
    pub item: String,
    /// The kind of problem; stable, so that programs can match on it.
    pub code: Code,
    /// Why the item could not be settled, for people.
    pub detail: String,
}

/// Filter and page of a list of jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListJobsQuery {
    /// Returns only jobs of this campaign run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Returns only jobs in this status. Default: every status if `run` is given, otherwise every
    /// status except `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub status: Option<CampaignJobStatus>,
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^[a-z]{1,10}\\.-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// Maximum number of jobs to return; default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignJobStatus {
    /// The job waits for a dispatcher, or for an operator to settle its items in doubt.
    Queued,
    /// A dispatcher holds the lease of the job and processes it.
    Locked,
    /// Every item of the job is settled.
    Completed,
    /// An attempt failed; the job is retried later.
    Failed,
    /// All attempts are exhausted: the job is a dead letter until it is redriven.
    Dead,
}

impl CampaignJobStatus {
    /// The status as it appears in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Locked => "locked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }
}

/// A job: a batch of items of a campaign run that one dispatcher processes at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignJob {
    /// The id of the job.
    pub job: String,
    /// The campaign run that the job belongs to.
    pub run: String,
    /// The type of the job: `email_send_batch`, `voice_call_batch` or `social_post_batch`.
    pub r#type: String,
    /// The status of the job.
    pub status: CampaignJobStatus,
    /// Number of attempts since an item of the job was last settled; of a job that has ended, the
    /// number of its last attempt.
    pub attempts: u32,
    /// How many times a dispatcher has claimed the job, including claims after a dispatcher was
    /// lost.
    #[serde(default)]
    pub claims: u32,
    /// The number of items in the job.
    pub items: u32,
    /// The number of items in each state.
    pub counts: CampaignItemCounts,
    /// The time before which the job is not attempted (RFC 3339). Absent if the job only waits for
    /// an operator to settle items in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_after: Option<String>,
    /// When the lease of the dispatcher that holds the job expires (RFC 3339); absent if no
    /// dispatcher holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The last error of the job; a completed job has one only if some of its items failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the job was created (RFC 3339).
    pub created_at: String,
}

/// One page of a list of jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// The jobs of this page, ordered by status and then by the time they are due.
    pub jobs: Vec<CampaignJob>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Channel and page of the suppression list.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSuppressionsQuery {
    /// The channel whose suppression list is read; required.
    #[param(inline)]
    pub channel: ChannelName,
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Maximum number of entries to return; default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Request to add an address to the suppression list of a channel.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSuppressionRequest {
    /// The channel by which the address is no longer reached.
    pub channel: ChannelName,
    /// The address to suppress, in the format of the channel.
    #[schema(min_length = 1, max_length = 1024)]
    pub address: String,
    /// Why the address is suppressed; default: empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// One entry of the suppression list: nothing is sent to this address by this channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuppressionEntry {
    /// The channel by which the address is not reached.
    pub channel: ChannelName,
    /// The suppressed address, in normalized form.
    pub address: String,
    /// Why the address is suppressed; empty if no reason was given.
    pub reason: String,
    /// When the address was added (RFC 3339).
    pub created_at: String,
}

/// The result of removing an address from the suppression list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveSuppressionResponse {
    /// The channel by which the address can be reached again.
    pub channel: ChannelName,
    /// The address that was removed.
    pub address: String,
    /// Whether the address was on the suppression list before this request.
    pub was_listed: bool,
}

/// One page of a suppression list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SuppressionPage {
    /// The entries of this page, ordered by address.
    pub suppressions: Vec<SuppressionEntry>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
