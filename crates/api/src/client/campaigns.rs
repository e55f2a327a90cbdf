//! What a client asks about campaigns.

use async_trait::async_trait;
use reqwest::Method;

use super::Client;
use crate::Json;
use crate::campaign::{
    AudiencePart, AuditListing, AuditPage, By, CampaignListing, CampaignPage, CampaignRun, Campaigning, ChannelName,
    Check, Checked, Control, DeployCampaign, DeployedCampaign, Preview, Previewed,
};
use crate::outbox::{
    DoubtListing, Job, JobListing, JobPage, OutboxItem, OutboxListing, OutboxPage, Settle, SettleMany, Settlement,
    Suppress, Suppression, SuppressionListing, SuppressionPage, Unsuppressed,
};
use crate::problem::Problem;

const RUNS: &str = "campaign-runs";

#[async_trait]
impl Campaigning for Client {
    async fn check_campaign(&self, campaign: Json) -> Result<Checked, Problem> {
        self.ask(self.request(Method::POST, &["campaigns", "check"])?.json(&Check { campaign })).await
    }

    async fn preview_campaign(&self, preview: Preview) -> Result<Previewed, Problem> {
        self.ask(self.request(Method::POST, &["campaigns", "preview"])?.json(&preview)).await
    }

    async fn put_audience_part(&self, audience: &str, number: u32, part: AudiencePart) -> Result<(), Problem> {
        let path = ["audiences", audience, "parts", &number.to_string()];
        self.send(self.request(Method::PUT, &path)?.json(&part)).await.map(drop)
    }

    async fn deploy_campaign(&self, deploy: DeployCampaign) -> Result<DeployedCampaign, Problem> {
        // A campaign of a million has ten thousand jobs, which are stored together.
        let request = self.request(Method::POST, &[RUNS])?.timeout(super::ANSWER * 4);
        self.ask(request.json(&deploy)).await
    }

    async fn campaign_runs(&self, listing: CampaignListing) -> Result<CampaignPage, Problem> {
        self.ask(self.get(&[RUNS], &listing, 0)?).await
    }

    async fn campaign_run(&self, run: &str) -> Result<CampaignRun, Problem> {
        self.ask(self.request(Method::GET, &[RUNS, run])?).await
    }

    async fn campaign_audit(&self, run: &str, listing: AuditListing) -> Result<AuditPage, Problem> {
        self.ask(self.get(&[RUNS, run, "audit"], &listing, 0)?).await
    }

    async fn control_campaign(&self, run: &str, control: Control, by: By) -> Result<CampaignRun, Problem> {
        let deed = match control {
            Control::Active => "resume",
            Control::Paused => "pause",
            Control::Cancelled => "cancel",
        };
        self.ask(self.request(Method::POST, &[RUNS, run, deed])?.json(&by)).await
    }

    async fn retry_campaign(&self, run: &str, by: By) -> Result<DeployedCampaign, Problem> {
        let request = self.request(Method::POST, &[RUNS, run, "retry"])?.timeout(super::ANSWER * 4);
        self.ask(request.json(&by)).await
    }

    async fn outbox(&self, listing: OutboxListing) -> Result<OutboxPage, Problem> {
        self.ask(self.get(&["outbox"], &listing, 0)?).await
    }

    async fn outbox_in_doubt(&self, listing: DoubtListing) -> Result<OutboxPage, Problem> {
        self.ask(self.get(&["outbox", "in-doubt"], &listing, 0)?).await
    }

    async fn settle(&self, item: &str, settle: Settle) -> Result<OutboxItem, Problem> {
        self.ask(self.request(Method::POST, &["outbox", item, "settle"])?.json(&settle)).await
    }

    async fn settle_many(&self, settle: SettleMany) -> Result<Settlement, Problem> {
        self.ask(self.request(Method::POST, &["outbox", "settle"])?.json(&settle)).await
    }

    async fn jobs(&self, listing: JobListing) -> Result<JobPage, Problem> {
        self.ask(self.get(&["jobs"], &listing, 0)?).await
    }

    async fn redrive(&self, job: &str, by: By) -> Result<Job, Problem> {
        self.ask(self.request(Method::POST, &["jobs", job, "redrive"])?.json(&by)).await
    }

    async fn suppressions(&self, listing: SuppressionListing) -> Result<SuppressionPage, Problem> {
        self.ask(self.get(&["suppressions"], &listing, 0)?).await
    }

    async fn suppress(&self, suppress: Suppress) -> Result<Suppression, Problem> {
        self.ask(self.request(Method::POST, &["suppressions"])?.json(&suppress)).await
    }

    async fn unsuppress(&self, channel: ChannelName, address: &str) -> Result<Unsuppressed, Problem> {
        let path = ["suppressions", channel.as_str(), address];
        self.ask(self.request(Method::DELETE, &path)?).await
    }
}
