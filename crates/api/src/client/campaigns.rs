//! Implements the campaign operations of the API over HTTP.

use async_trait::async_trait;
use reqwest::Method;

use super::ApiClient;
use crate::RawJson;
use crate::campaign::{
    CampaignApi, CampaignAuditPage, CampaignControl, CampaignRunPage, CampaignRunView, ChannelName,
    CheckCampaignRequest, CheckCampaignResponse, DeployCampaignRequest, DeployCampaignResponse,
    ListAuditEntriesQuery, ListCampaignRunsQuery, OperatorActionRequest, PreviewCampaignRequest,
    PreviewCampaignResponse, PutAudiencePartRequest,
};
use crate::outbox::{
    AddSuppressionRequest, CampaignJob, JobPage, ListInDoubtItemsQuery, ListJobsQuery,
    ListOutboxItemsQuery, ListSuppressionsQuery, OutboxItemPage, OutboxItemView,
    RemoveSuppressionResponse, SettleItemRequest, SettleItemsRequest, SettleItemsResponse,
    SuppressionEntry, SuppressionPage,
};
use crate::problem::Problem;

const CAMPAIGN_RUNS_PATH: &str = "campaign-runs";

#[async_trait]
impl CampaignApi for ApiClient {
    async fn check_campaign(&self, campaign: RawJson) -> Result<CheckCampaignResponse, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["campaigns", "check"])?
                .json(&CheckCampaignRequest { campaign }),
        )
        .await
    }

    async fn preview_campaign(
        &self,
        preview: PreviewCampaignRequest,
    ) -> Result<PreviewCampaignResponse, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["campaigns", "preview"])?
                .json(&preview),
        )
        .await
    }

    async fn put_audience_part(
        &self,
        audience: &str,
        number: u32,
        part: PutAudiencePartRequest,
    ) -> Result<(), Problem> {
        let path = ["audiences", audience, "parts", &number.to_string()];
        self.send_with_retry(self.build_request(Method::PUT, &path)?.json(&part))
            .await
            .map(drop)
    }

    async fn deploy_campaign(
        &self,
        deploy: DeployCampaignRequest,
    ) -> Result<DeployCampaignResponse, Problem> {
        // A campaign with a million recipients has ten thousand jobs, which the server stores
        // together: allow more time.
        let request = self
            .build_request(Method::POST, &[CAMPAIGN_RUNS_PATH])?
            .timeout(super::RESPONSE_TIMEOUT * 4);
        self.send_for_json(request.json(&deploy)).await
    }

    async fn list_campaign_runs(
        &self,
        listing: ListCampaignRunsQuery,
    ) -> Result<CampaignRunPage, Problem> {
        self.send_for_json(self.build_get_request(&[CAMPAIGN_RUNS_PATH], &listing, 0)?)
            .await
    }

    async fn get_campaign_run(&self, run: &str) -> Result<CampaignRunView, Problem> {
        self.send_for_json(self.build_request(Method::GET, &[CAMPAIGN_RUNS_PATH, run])?)
            .await
    }

    async fn list_audit_entries(
        &self,
        run: &str,
        listing: ListAuditEntriesQuery,
    ) -> Result<CampaignAuditPage, Problem> {
        self.send_for_json(self.build_get_request(
            &[CAMPAIGN_RUNS_PATH, run, "audit"],
            &listing,
            0,
        )?)
        .await
    }

    async fn control_campaign_run(
        &self,
        run: &str,
        control: CampaignControl,
        by: OperatorActionRequest,
    ) -> Result<CampaignRunView, Problem> {
        let action = match control {
            CampaignControl::Active => "resume",
            CampaignControl::Paused => "pause",
            CampaignControl::Cancelled => "cancel",
        };
        self.send_for_json(
            self.build_request(Method::POST, &[CAMPAIGN_RUNS_PATH, run, action])?
                .json(&by),
        )
        .await
    }

    async fn retry_campaign_run(
        &self,
        run: &str,
        by: OperatorActionRequest,
    ) -> Result<DeployCampaignResponse, Problem> {
        let request = self
            .build_request(Method::POST, &[CAMPAIGN_RUNS_PATH, run, "retry"])?
            .timeout(super::RESPONSE_TIMEOUT * 4);
        self.send_for_json(request.json(&by)).await
    }

    async fn list_outbox_items(
        &self,
        listing: ListOutboxItemsQuery,
    ) -> Result<OutboxItemPage, Problem> {
        self.send_for_json(self.build_get_request(&["outbox"], &listing, 0)?)
            .await
    }

    async fn list_in_doubt_items(
        &self,
        listing: ListInDoubtItemsQuery,
    ) -> Result<OutboxItemPage, Problem> {
        self.send_for_json(self.build_get_request(&["outbox", "in-doubt"], &listing, 0)?)
            .await
    }

    async fn settle_item(
        &self,
        item: &str,
        settle: SettleItemRequest,
    ) -> Result<OutboxItemView, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["outbox", item, "settle"])?
                .json(&settle),
        )
        .await
    }

    async fn settle_items(
        &self,
        settle: SettleItemsRequest,
    ) -> Result<SettleItemsResponse, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["outbox", "settle"])?
                .json(&settle),
        )
        .await
    }

    async fn list_jobs(&self, listing: ListJobsQuery) -> Result<JobPage, Problem> {
        self.send_for_json(self.build_get_request(&["jobs"], &listing, 0)?)
            .await
    }

    async fn redrive_job(
        &self,
        job: &str,
        by: OperatorActionRequest,
    ) -> Result<CampaignJob, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["jobs", job, "redrive"])?
                .json(&by),
        )
        .await
    }

    async fn list_suppressions(
        &self,
        listing: ListSuppressionsQuery,
    ) -> Result<SuppressionPage, Problem> {
        self.send_for_json(self.build_get_request(&["suppressions"], &listing, 0)?)
            .await
    }

    async fn add_suppression(
        &self,
        suppress: AddSuppressionRequest,
    ) -> Result<SuppressionEntry, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["suppressions"])?
                .json(&suppress),
        )
        .await
    }

    async fn remove_suppression(
        &self,
        channel: ChannelName,
        address: &str,
    ) -> Result<RemoveSuppressionResponse, Problem> {
        let path = ["suppressions", channel.as_str(), address];
        self.send_for_json(self.build_request(Method::DELETE, &path)?)
            .await
    }
}
