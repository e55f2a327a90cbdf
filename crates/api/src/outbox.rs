//! What was sent to whom: items, the jobs that they are in, and those who want nothing more.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::campaign::{CampaignTally, ChannelName};
use crate::problem::Code;

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutboxItemState {
    /// It is to be delivered.
    Waiting,
    /// Somebody may be calling the provider for it now.
    Held,
    /// The provider has taken it.
    Served,
    /// It was not delivered.
    Failed,
    /// It was not to be delivered.
    Skipped,
    /// Nobody knows.
    InDoubt,
}

impl OutboxItemState {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Served => "served",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::InDoubt => "in-doubt",
        }
    }
}

/// Which items to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListOutboxItemsQuery {
    /// Those of this campaign run.
    pub run: String,
    /// Only those that stand there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub standing: Option<OutboxItemState>,
    /// Only those for this recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which items in doubt to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListInDoubtItemsQuery {
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// About so many: those of a job come together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One call of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxItemView {
    /// The item.
    pub item: String,
    /// Its campaign run.
    pub run: String,
    /// Its job.
    pub job: String,
    /// Whom it is for.
    pub recipient: String,
    /// Where that is.
    pub to: String,
    /// By which way.
    pub channel: ChannelName,
    /// Who really sends.
    pub provider: String,
    /// What the provider is told, so that it can take it once.
    pub key: String,
    /// Where it stands.
    pub standing: OutboxItemState,
    /// `queued`, `sent`, `called`, `posted`, `failed` or `skipped`.
    pub status: String,
    /// How often the provider was called.
    pub calls: u32,
    /// Why it was skipped, or failed: one of a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the provider calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Since when nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_since: Option<String>,
    /// When it was reserved.
    pub created_at: String,
    /// When it was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
}

/// A part of a list of items.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OutboxItemPage {
    /// The items.
    pub items: Vec<OutboxItemView>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What became of an item in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemResolution {
    /// The provider has taken it.
    Sent,
    /// It was not delivered, and will not be.
    Failed,
    /// It was not delivered, and is to be.
    Again,
}

/// What somebody says of an item in doubt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleItemRequest {
    /// What became of it.
    pub verdict: ItemResolution,
    /// How that is known.
    #[schema(min_length = 1, max_length = 1024)]
    pub why: String,
    /// What the provider calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub message_id: Option<String>,
    /// Who says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// What somebody says of many items in doubt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleItemsRequest {
    /// The items. Those of one job are settled together.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<String>,
    /// What became of them.
    pub verdict: ItemResolution,
    /// How that is known.
    #[schema(min_length = 1, max_length = 1024)]
    pub why: String,
    /// Who says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// What came of verdicts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettleItemsResponse {
    /// Those that are settled.
    pub settled: Vec<OutboxItemView>,
    /// Those that are not, and why.
    pub refused: Vec<UnsettledItem>,
}

/// An item that could not be settled.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UnsettledItem {
    /// The item.
    pub item: String,
    /// What kind of problem it is; stable, for programs.
    pub code: Code,
    /// What is the matter.
    pub detail: String,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListJobsQuery {
    /// Only those of this campaign run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Only those in this status; unless told, all of a run, or all that are not completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub status: Option<CampaignJobStatus>,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^[a-z]{1,10}\\.-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignJobStatus {
    /// It waits for a worker, or for a verdict.
    Queued,
    /// A worker has it.
    Locked,
    /// Every item is settled.
    Completed,
    /// It is tried again later.
    Failed,
    /// It was tried as often as it may be.
    Dead,
}

impl CampaignJobStatus {
    /// As it is written.
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

/// A batch of items of a campaign run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignJob {
    /// The job.
    pub job: String,
    /// Its campaign run.
    pub run: String,
    /// `email_send_batch`, `voice_call_batch` or `social_post_batch`.
    pub r#type: String,
    /// Where it stands.
    pub status: CampaignJobStatus,
    /// Tries since anything was settled.
    pub attempts: u32,
    /// How many items it has.
    pub items: u32,
    /// How many stand where.
    pub tally: CampaignTally,
    /// Not before; never while only a verdict can help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_after: Option<String>,
    /// Until when a worker has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was made.
    pub created_at: String,
}

/// A part of a list of jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<CampaignJob>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which of those who want nothing more to list.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSuppressionsQuery {
    /// By which way.
    #[param(inline)]
    pub channel: ChannelName,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Somebody who wants nothing more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSuppressionRequest {
    /// By which way.
    pub channel: ChannelName,
    /// Where they are reached.
    #[schema(min_length = 1, max_length = 1024)]
    pub address: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// Somebody who wants nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuppressionEntry {
    /// By which way.
    pub channel: ChannelName,
    /// Where they are reached.
    pub address: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub created_at: String,
}

/// Somebody who is reached again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveSuppressionResponse {
    /// By which way.
    pub channel: ChannelName,
    /// Where they are reached.
    pub address: String,
    /// Whether they wanted nothing more until now.
    pub was_listed: bool,
}

/// A part of a list of those who want nothing more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SuppressionPage {
    /// The suppressions, in the order of their addresses.
    pub suppressions: Vec<SuppressionEntry>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
