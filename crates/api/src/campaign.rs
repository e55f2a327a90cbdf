//! Campaigns: how they are checked, deployed, watched and told things; their jobs, and what was sent to whom.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::RawJson;
use crate::outbox::{
    AddSuppressionRequest, CampaignJob, JobPage, ListInDoubtItemsQuery, ListJobsQuery,
    ListOutboxItemsQuery, ListSuppressionsQuery, OutboxItemPage, OutboxItemView,
    RemoveSuppressionResponse, SettleItemRequest, SettleItemsRequest, SettleItemsResponse,
    SuppressionEntry, SuppressionPage,
};
use crate::problem::Problem;

/// What can be asked about campaigns.
#[async_trait]
pub trait CampaignApi: Send + Sync {
    /// Whether a campaign can be deployed, as far as that can be told without its audience.
    async fn check_campaign(&self, campaign: RawJson) -> Result<CheckCampaignResponse, Problem>;

    /// What these recipients would be sent.
    async fn preview_campaign(
        &self,
        preview: PreviewCampaignRequest,
    ) -> Result<PreviewCampaignResponse, Problem>;

    /// Stores a part of an audience: 1 to 1000 recipients. Storing it again does nothing.
    async fn put_audience_part(
        &self,
        audience: &str,
        number: u32,
        part: PutAudiencePartRequest,
    ) -> Result<(), Problem>;

    /// Deploys a campaign for an audience whose parts are stored.
    async fn deploy_campaign(
        &self,
        deploy: DeployCampaignRequest,
    ) -> Result<DeployCampaignResponse, Problem>;

    /// Campaign runs, the newest first.
    async fn list_campaign_runs(
        &self,
        listing: ListCampaignRunsQuery,
    ) -> Result<CampaignRunPage, Problem>;

    /// A campaign run, and how many were reached.
    async fn get_campaign_run(&self, run: &str) -> Result<CampaignRunView, Problem>;

    /// What happened to a campaign run, after the entry with this number.
    async fn list_audit_entries(
        &self,
        run: &str,
        listing: ListAuditEntriesQuery,
    ) -> Result<CampaignAuditPage, Problem>;

    /// Pauses, resumes or cancels a campaign run.
    async fn control_campaign_run(
        &self,
        run: &str,
        control: CampaignControl,
        by: OperatorActionRequest,
    ) -> Result<CampaignRunView, Problem>;

    /// Tries a campaign run again that is over: another run reaches those whom it did not.
    async fn retry_campaign_run(
        &self,
        run: &str,
        by: OperatorActionRequest,
    ) -> Result<DeployCampaignResponse, Problem>;

    /// Items of a campaign run.
    async fn list_outbox_items(
        &self,
        listing: ListOutboxItemsQuery,
    ) -> Result<OutboxItemPage, Problem>;

    /// Items in doubt, of all campaign runs.
    async fn list_in_doubt_items(
        &self,
        listing: ListInDoubtItemsQuery,
    ) -> Result<OutboxItemPage, Problem>;

    /// Says what became of an item in doubt.
    async fn settle_item(
        &self,
        item: &str,
        settle: SettleItemRequest,
    ) -> Result<OutboxItemView, Problem>;

    /// Says the same of many items in doubt.
    async fn settle_items(
        &self,
        settle: SettleItemsRequest,
    ) -> Result<SettleItemsResponse, Problem>;

    /// Jobs of campaign runs.
    async fn list_jobs(&self, listing: ListJobsQuery) -> Result<JobPage, Problem>;

    /// Tries a dead job again.
    async fn redrive_job(
        &self,
        job: &str,
        by: OperatorActionRequest,
    ) -> Result<CampaignJob, Problem>;

    /// Those who want nothing more by a channel.
    async fn list_suppressions(
        &self,
        listing: ListSuppressionsQuery,
    ) -> Result<SuppressionPage, Problem>;

    /// Reaches somebody no more by a channel.
    async fn add_suppression(
        &self,
        suppress: AddSuppressionRequest,
    ) -> Result<SuppressionEntry, Problem>;

    /// Reaches somebody again by a channel.
    async fn remove_suppression(
        &self,
        channel: ChannelName,
        address: &str,
    ) -> Result<RemoveSuppressionResponse, Problem>;
}

/// By which way people are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelName {
    /// By mail.
    Email,
    /// By telephone.
    Voice,
    /// By posts.
    Social,
}

impl ChannelName {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Voice => "voice",
            Self::Social => "social",
        }
    }
}

/// Something that has to be so before a campaign is deployed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrerequisiteCheck {
    /// What it is called; stable, for programs.
    pub id: String,
    /// Whether it is so.
    pub pass: bool,
    /// What was found.
    pub message: String,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckCampaignResponse {
    /// Whether the campaign can be deployed.
    pub pass: bool,
    /// All that was looked at.
    pub prerequisites: Vec<PrerequisiteCheck>,
}

/// A campaign to check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
}

/// Somebody to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipientInput {
    /// Who it is. Of several with the same id, one is reached.
    #[schema(min_length = 1, max_length = 255)]
    pub id: String,
    /// Where: an address of mail, a number, a place to post to.
    #[schema(min_length = 1, max_length = 1024)]
    pub to: String,
    /// What templates can say of them.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = Object)]
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// A campaign to preview.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
    /// For whom.
    #[schema(max_items = 100)]
    pub recipients: Vec<RecipientInput>,
}

/// What people would be sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PreviewCampaignResponse {
    /// One for each recipient, in their order.
    pub messages: Vec<MessagePreview>,
}

/// What somebody would be sent, or why there is nothing that can be.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MessagePreview {
    /// For whom.
    pub recipient: String,
    /// Where that is.
    pub to: String,
    /// The message, part by part.
    #[serde(default)]
    pub parts: Vec<MessagePart>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A part of a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MessagePart {
    /// What it is called, such as `subject`.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A part of an audience.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutAudiencePartRequest {
    /// The recipients: a job has them all.
    #[schema(min_items = 1, max_items = 1000)]
    pub recipients: Vec<RecipientInput>,
}

/// What is to happen with those whom earlier runs of the same campaign have reached, or are to: by the name of the campaign and
/// the ids of its recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RepeatContactPolicy {
    /// Nothing is deployed if there is one.
    #[default]
    Refuse,
    /// The others are reached.
    LeaveOut,
    /// They are reached again.
    Again,
}

/// A campaign to deploy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
    /// An audience whose parts are stored.
    pub audience: String,
    /// Deploying again with the same key returns the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500)]
    pub key: Option<String>,
    /// What is to happen with those whom earlier runs of the same campaign have reached; `refuse` unless told.
    #[serde(default)]
    pub reached: RepeatContactPolicy,
    /// Who deploys it, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// What a deployment came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployCampaignResponse {
    /// The campaign run.
    pub run: String,
    /// Whether it was there already.
    pub existed: bool,
    /// Those whom it is to reach.
    pub items: u32,
    /// In so many jobs.
    pub jobs: u32,
    /// Rows of the audience that were left out, because earlier runs have reached those people.
    #[serde(default)]
    pub left_out: u32,
    /// What was looked at before.
    #[serde(default)]
    pub prerequisites: Vec<PrerequisiteCheck>,
}

/// Which campaign runs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCampaignRunsQuery {
    /// Only those of this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// Only those in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub status: Option<CampaignStatus>,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// What a campaign run has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignStatus {
    /// Nobody has begun.
    Queued,
    /// Its jobs are being worked on.
    Running,
    /// Everybody was reached who was to be.
    Completed,
    /// Some were reached.
    Partial,
    /// Nobody was reached.
    Failed,
}

impl CampaignStatus {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing follows, unless somebody wants it to.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed)
    }
}

/// What people want of a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignControl {
    /// That it goes on.
    Active,
    /// That nothing more is begun for now.
    Paused,
    /// That nothing more is begun.
    Cancelled,
}

impl CampaignControl {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A campaign run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRunSummary {
    /// The campaign run.
    pub run: String,
    /// The campaign.
    pub campaign: String,
    /// By which way people are reached.
    pub channel: ChannelName,
    /// What it has come to.
    pub status: CampaignStatus,
    /// What people want of it.
    pub control: CampaignControl,
    /// Those whom it is to reach.
    pub items: u32,
    /// In so many jobs.
    pub jobs: u32,
    /// Not before.
    pub scheduled_for: String,
    /// When it was deployed.
    pub created_at: String,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The run whose unserved recipients it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
}

/// A part of a list of campaign runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignRunPage {
    /// The campaign runs.
    pub runs: Vec<CampaignRunSummary>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A campaign run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRunView {
    /// What lists say of it.
    #[serde(flatten)]
    pub summary: CampaignRunSummary,
    /// How many stand where.
    pub tally: CampaignTally,
    /// Who really sends.
    pub provider: String,
    /// The run that reaches those whom this one did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_by: Option<String>,
    /// What is done for it now, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<ActiveJobs>,
    /// What it waits for, if nothing is done for it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<CampaignRunWait>,
}

/// What is done for a campaign run. Somebody who was killed is not told apart from somebody at work, before that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveJobs {
    /// Jobs that workers have, a thousand at most.
    pub jobs: u64,
    /// When the first of them is taken over, unless its worker is heard of: what that held is in doubt then.
    pub until: String,
}

/// Until when nothing is done for a campaign run: it is scheduled for later, a limit or quiet hours are in the way, or the
/// provider wants to be left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CampaignRunWait {
    /// Until when.
    pub until: String,
    /// What went wrong last, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How many of a campaign run stand where. The rest is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignTally {
    /// Those that the provider has taken.
    pub served: u64,
    /// Those that were not delivered, and will not be.
    pub failed: u64,
    /// Those that were not to be delivered, or were named twice.
    pub skipped: u64,
    /// Those of which nobody knows.
    pub in_doubt: u64,
    /// Those for which something has still to be done.
    pub waiting: u64,
}

/// Which entries of an audit trail to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListAuditEntriesQuery {
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0)]
    pub after: Option<i64>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Something that happened to a campaign run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignAuditEntry {
    /// Its number; later ones have larger numbers.
    pub entry: i64,
    /// What happened.
    pub event: String,
    /// When.
    pub at: String,
    /// The particulars.
    #[serde(default)]
    pub detail: RawJson,
}

/// A part of an audit trail.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignAuditPage {
    /// The entries, in order.
    pub entries: Vec<CampaignAuditEntry>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Who wants something, for the record.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorActionRequest {
    /// Who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}
