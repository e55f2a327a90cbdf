//! Wire types and operations for campaigns: check, preview, deploy, list, control and retry
//! campaign runs, and read their audit trail.

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

/// The operations of the API on campaigns, their jobs, their outbox items and the suppression list.
#[async_trait]
pub trait CampaignApi: Send + Sync {
    /// Checks whether a campaign can be deployed, as far as this is possible without its audience.
    async fn check_campaign(&self, campaign: RawJson) -> Result<CheckCampaignResponse, Problem>;

    /// Returns the messages that the given recipients would receive. Sends nothing.
    async fn preview_campaign(
        &self,
        preview: PreviewCampaignRequest,
    ) -> Result<PreviewCampaignResponse, Problem>;

    /// Stores one part of an audience, 1 to 1000 recipients. Storing the same part again changes
    /// nothing.
    async fn put_audience_part(
        &self,
        audience: &str,
        number: u32,
        part: PutAudiencePartRequest,
    ) -> Result<(), Problem>;

    /// Deploys a campaign for an audience whose parts are already stored.
    async fn deploy_campaign(
        &self,
        deploy: DeployCampaignRequest,
    ) -> Result<DeployCampaignResponse, Problem>;

    /// Lists campaign runs, newest first.
    async fn list_campaign_runs(
        &self,
        listing: ListCampaignRunsQuery,
    ) -> Result<CampaignRunPage, Problem>;

    /// Returns a campaign run with the number of items in each state.
    async fn get_campaign_run(&self, run: &str) -> Result<CampaignRunView, Problem>;

    /// Lists the audit trail of a campaign run, starting after the entry `after`.
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

    /// Retries a finished campaign run: deploys another run for the recipients that this run did
    /// not reach.
    async fn retry_campaign_run(
        &self,
        run: &str,
        by: OperatorActionRequest,
    ) -> Result<DeployCampaignResponse, Problem>;

    /// Lists the outbox items of a campaign run.
    async fn list_outbox_items(
        &self,
        listing: ListOutboxItemsQuery,
    ) -> Result<OutboxItemPage, Problem>;

    /// Lists the items in doubt of all campaign runs.
    async fn list_in_doubt_items(
        &self,
        listing: ListInDoubtItemsQuery,
    ) -> Result<OutboxItemPage, Problem>;

    /// Settles an item in doubt with the outcome that an operator has determined.
    async fn settle_item(
        &self,
        item: &str,
        settle: SettleItemRequest,
    ) -> Result<OutboxItemView, Problem>;

    /// Settles many items in doubt with the same outcome.
    async fn settle_items(
        &self,
        settle: SettleItemsRequest,
    ) -> Result<SettleItemsResponse, Problem>;

    /// Lists the jobs of campaign runs.
    async fn list_jobs(&self, listing: ListJobsQuery) -> Result<JobPage, Problem>;

    /// Redrives a dead job: its exhausted items are attempted again. A job that waits for its next
    /// attempt is attempted now.
    async fn redrive_job(
        &self,
        job: &str,
        by: OperatorActionRequest,
    ) -> Result<CampaignJob, Problem>;

    /// Lists the suppression list of a channel.
    async fn list_suppressions(
        &self,
        listing: ListSuppressionsQuery,
    ) -> Result<SuppressionPage, Problem>;

    /// Adds an address to the suppression list of a channel.
    async fn add_suppression(
        &self,
        suppress: AddSuppressionRequest,
    ) -> Result<SuppressionEntry, Problem>;

    /// Removes an address from the suppression list of a channel.
    async fn remove_suppression(
        &self,
        channel: ChannelName,
        address: &str,
    ) -> Result<RemoveSuppressionResponse, Problem>;
}

/// The channel by which a campaign reaches its recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelName {
    /// Messages sent by email.
    Email,
    /// Telephone calls.
    Voice,
    /// Posts on social media.
    Social,
}

impl ChannelName {
    /// The channel as it appears in JSON and in URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Voice => "voice",
            Self::Social => "social",
        }
    }
}

/// One condition that must hold before a campaign can be deployed, and whether it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrerequisiteCheck {
    /// Identifier of the check; stable, so that programs can match on it.
    pub id: String,
    /// Whether the condition holds.
    pub pass: bool,
    /// What the check found, for people.
    pub message: String,
}

/// The result of checking a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckCampaignResponse {
    /// Whether the campaign can be deployed, that is, whether every prerequisite passes.
    pub pass: bool,
    /// All prerequisites that were checked, including those that passed.
    pub prerequisites: Vec<PrerequisiteCheck>,
}

/// Request to check a campaign without deploying it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
}

/// One recipient of a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipientInput {
    /// Identifies the recipient. If several recipients of an audience have the same id, only one of
    /// them is reached.
    #[schema(min_length = 1, max_length = 255)]
    pub id: String,
    /// The address of the recipient on the channel: an email address, a telephone number, or a
    /// place to post to.
    #[schema(min_length = 1, max_length = 1024)]
    pub to: String,
    /// Values that templates can use for this recipient.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = Object)]
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// Request to preview the messages of a campaign.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
    /// The recipients to compose messages for; at most 100.
    #[schema(max_items = 100)]
    pub recipients: Vec<RecipientInput>,
}

/// The messages that recipients would receive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PreviewCampaignResponse {
    /// One preview for each recipient, in the order of the request.
    pub messages: Vec<MessagePreview>,
}

/// The message that one recipient would receive, or the reason why none can be composed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MessagePreview {
    /// The id of the recipient.
    pub recipient: String,
    /// The address of the recipient.
    pub to: String,
    /// The parts of the message, such as subject and body; empty if `error` is set.
    #[serde(default)]
    pub parts: Vec<MessagePart>,
    /// Why no message can be composed; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One part of a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MessagePart {
    /// The name of the part, such as `subject`.
    pub name: String,
    /// The rendered text of the part.
    pub text: String,
}

/// Request to store one part of an audience.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutAudiencePartRequest {
    /// The recipients of this part; 1 to 1000. One job processes all of them.
    #[schema(min_items = 1, max_items = 1000)]
    pub recipients: Vec<RecipientInput>,
}

/// What a deployment does about recipients that earlier runs of the same campaign have reached or
/// will reach. Runs are matched by the campaign's name, recipients by their id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PreviousRecipientsPolicy {
    /// The deployment is rejected if there is any such recipient.
    #[default]
    Reject,
    /// Such recipients are excluded, and only the others are reached.
    Exclude,
    /// Such recipients are reached again.
    Resend,
}

/// Request to deploy a campaign.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeployCampaignRequest {
    /// The campaign file, as JSON.
    pub campaign: RawJson,
    /// The name of an audience whose parts are already stored.
    pub audience: String,
    /// Idempotency key: deploying again with the same key returns the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500)]
    pub key: Option<String>,
    /// What to do about recipients that earlier runs of the same campaign have reached; default:
    /// `reject`.
    #[serde(default)]
    pub previous_recipients: PreviousRecipientsPolicy,
    /// The person who deploys the campaign, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

/// The result of deploying or retrying a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployCampaignResponse {
    /// The id of the campaign run.
    pub run: String,
    /// Whether the run existed before this request.
    pub existed: bool,
    /// The number of recipients that the run is to reach.
    pub items: u32,
    /// The number of jobs that these recipients are divided into.
    pub jobs: u32,
    /// The number of rows of the audience that were excluded because earlier runs have reached
    /// these recipients.
    #[serde(default)]
    pub excluded: u32,
    /// The prerequisites that were checked before the deployment.
    #[serde(default)]
    pub prerequisites: Vec<PrerequisiteCheck>,
}

/// Filter and page of a list of campaign runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCampaignRunsQuery {
    /// Returns only runs of this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// Returns only runs in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub status: Option<CampaignStatus>,
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\..{1,200}$")]
    pub after: Option<String>,
    /// Maximum number of runs to return; default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// The progress or final outcome of a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignStatus {
    /// No job of the run has started.
    Queued,
    /// Jobs of the run are being processed.
    Running,
    /// The run has ended, and every recipient that was to be reached was reached.
    Completed,
    /// The run has ended, and only some recipients were reached.
    Partial,
    /// The run has ended, and no recipient was reached.
    Failed,
}

impl CampaignStatus {
    /// The status as it appears in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }

    /// Whether the run has ended. Only an operator can cause further work on it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed)
    }
}

/// Whether an operator lets a campaign run proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CampaignControl {
    /// The run proceeds.
    Active,
    /// The run starts no new sends until it is resumed.
    Paused,
    /// The run starts no new sends, for good.
    Cancelled,
}

impl CampaignControl {
    /// The control state as it appears in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A campaign run as it appears in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRunSummary {
    /// The id of the campaign run.
    pub run: String,
    /// The id of the campaign.
    pub campaign: String,
    /// The channel by which recipients are reached.
    pub channel: ChannelName,
    /// The progress or final outcome of the run.
    pub status: CampaignStatus,
    /// Whether an operator has paused or cancelled the run.
    pub control: CampaignControl,
    /// The number of recipients that the run is to reach.
    pub items: u32,
    /// The number of jobs that these recipients are divided into.
    pub jobs: u32,
    /// The time before which nothing is sent (RFC 3339).
    pub scheduled_for: String,
    /// When the run was deployed (RFC 3339).
    pub created_at: String,
    /// When the run ended (RFC 3339); absent while it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The run that this one retries: it reaches the recipients that the other did not. Absent if
    /// it is not a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
}

/// One page of a list of campaign runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignRunPage {
    /// The campaign runs of this page, newest first.
    pub runs: Vec<CampaignRunSummary>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A campaign run with its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRunView {
    /// The fields that lists of campaign runs also have.
    #[serde(flatten)]
    pub summary: CampaignRunSummary,
    /// The number of items in each state.
    pub counts: CampaignItemCounts,
    /// The provider that delivers the messages.
    pub provider: String,
    /// The run that retries this one for the recipients that it did not reach; absent if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_by: Option<String>,
    /// The jobs of the run that are being processed now; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_jobs: Option<ActiveJobs>,
    /// Until when the run waits, if no job is being processed now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<CampaignRunWait>,
}

/// The jobs of a campaign run that dispatchers hold. Until the lease expires, a dispatcher that was
/// killed cannot be distinguished from one that is working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveJobs {
    /// The number of jobs that dispatchers hold; counted up to 1000.
    pub jobs: u64,
    /// When the first of these leases expires unless its dispatcher renews it (RFC 3339). Another
    /// dispatcher then takes the job over, and the items that were reserved become in doubt.
    pub leased_until: String,
}

/// Why and until when a campaign run is idle: it is scheduled for later, a rate limit or quiet
/// hours apply, or the provider asked for a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CampaignRunWait {
    /// When the run continues (RFC 3339).
    pub until: String,
    /// The last error of the job that is due next; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The number of items in each state, of a campaign run or of a job. Every item counts in exactly
/// one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignItemCounts {
    /// Items that the provider has accepted.
    pub sent: u64,
    /// Items that were not delivered and will not be.
    pub failed: u64,
    /// Items that were not to be delivered, and recipients that the audience named twice.
    pub skipped: u64,
    /// Items in doubt: it is unknown whether the provider has accepted them.
    pub in_doubt: u64,
    /// Items that still have to be processed.
    pub waiting: u64,
}

/// Page of an audit trail.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListAuditEntriesQuery {
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0)]
    pub after: Option<i64>,
    /// Maximum number of entries to return; default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One entry of the audit trail of a campaign run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignAuditEntry {
    /// The number of the entry; later entries have larger numbers.
    pub entry: i64,
    /// The kind of event, such as `job.redriven`.
    pub event: String,
    /// When the event happened (RFC 3339).
    pub at: String,
    /// Details of the event; their fields depend on its kind.
    #[serde(default)]
    pub detail: RawJson,
}

/// One page of an audit trail.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CampaignAuditPage {
    /// The entries of this page, oldest first.
    pub entries: Vec<CampaignAuditEntry>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// The person who requests an action on a campaign run or job, for the audit trail.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorActionRequest {
    /// The name of that person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub by: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::PreviousRecipientsPolicy;

    #[test]
    fn the_policies_for_previous_recipients_match_the_specification() {
        let page = include_str!("../../../spec/dispatch.md");
        let deploying = page
            .split("\n## ")
            .find(|part| part.starts_with("Deploying\n"))
            .unwrap();
        let rows = deploying.lines().filter(|line| line.starts_with("| `"));
        let mut specified = Vec::new();
        for row in rows {
            let name = row.trim_start_matches("| `").split('`').next().unwrap();
            let policy: PreviousRecipientsPolicy =
                serde_json::from_str(&format!("\"{name}\"")).unwrap();
            let is_default = row.contains("(default)");
            assert_eq!(is_default, policy == PreviousRecipientsPolicy::default());
            specified.push(policy);
        }
        let all = [
            PreviousRecipientsPolicy::Reject,
            PreviousRecipientsPolicy::Exclude,
            PreviousRecipientsPolicy::Resend,
        ];
        assert_eq!(specified, all);
    }
}
