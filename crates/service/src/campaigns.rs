//! The campaign operations of the API: check, preview, deploy, control, list and settle.

use std::sync::Arc;

use async_trait::async_trait;
use onward_api::campaign::{
    CampaignApi, CampaignAuditEntry, CampaignAuditPage, CampaignControl, CampaignRunPage,
    CampaignRunSummary, CampaignRunView, ChannelName, CheckCampaignResponse, DeployCampaignRequest,
    DeployCampaignResponse, ListAuditEntriesQuery, ListCampaignRunsQuery, OperatorActionRequest,
    PreviewCampaignRequest, PreviewCampaignResponse, PreviousRecipientsPolicy,
    PutAudiencePartRequest,
};
use onward_api::outbox::{
    AddSuppressionRequest, CampaignJob, JobPage, ListInDoubtItemsQuery, ListJobsQuery,
    ListOutboxItemsQuery, ListSuppressionsQuery, OutboxItemPage, OutboxItemView,
    RemoveSuppressionResponse, SettleItemRequest, SettleItemsRequest, SettleItemsResponse,
    SuppressionEntry, SuppressionPage, UnsettledItem,
};
use onward_api::problem::{Code, Problem};
use onward_api::{RawJson, parse_json};
use onward_campaign_dispatch::{
    CampaignDeployment, EntropySource, JobCursor, JobFilter, RepeatSendPolicy, ScopedCampaigns,
    TimestampCursor,
};
use onward_store::tables;

use super::ApiService;
use super::campaign_documents::{self, api_deployment, delivery_channel};
use super::campaign_input::{
    ADDRESS_MAX, ID_MAX, REASON_MAX, normalize_address, parse_campaign, parse_page_cursor,
    parse_recipient, parse_resolution,
};
use super::campaign_inspection::require_prerequisites;
use super::executions::{KEY_MAX, parse_page_size};
use super::problems::{campaign_problem, check_length, invalid_field, store_problem};
use super::template_workers::{RequestBudget, RequestLimits};

/// Default number of entries per page.
const DEFAULT_PAGE_SIZE: u32 = 100;

/// Maximum number of recipients of one preview.
const PREVIEW_MAX: usize = 100;

/// Maximum number of items in one settle request.
const SETTLE_ITEMS_MAX: usize = 1_000;

/// Maximum length of an audience name in characters, and maximum number of a part.
const AUDIENCE_MAX: usize = 100;
const PART_MAX: u32 = 98_999;

/// Maximum length in characters of the actor of an operation.
const ACTOR_MAX: usize = 200;

impl ApiService {
    pub(super) fn campaigns_in_scope(&self) -> ScopedCampaigns {
        let scope = self.client.scope().clone();
        ScopedCampaigns::new(Arc::clone(self.client.store()), scope)
    }

    /// The actor for the audit trail: the name that the caller gave and the name of the caller's
    /// token.
    fn audit_actor(&self, by: Option<&str>) -> Result<String, Problem> {
        check_length("by", by.unwrap_or_default(), ACTOR_MAX)?;
        let name = by.filter(|by| !by.is_empty());
        Ok(match (name, &self.caller_token) {
            (Some(name), Some(token)) => format!("{name} (token {token})"),
            (Some(name), None) => name.to_owned(),
            (None, Some(token)) => format!("token {token}"),
            (None, None) => "unknown".to_owned(),
        })
    }
}

#[async_trait]
impl CampaignApi for ApiService {
    async fn check_campaign(&self, campaign: RawJson) -> Result<CheckCampaignResponse, Problem> {
        let prerequisites = self.check_prerequisites(campaign).await?;
        let pass = prerequisites.iter().all(|it| it.pass);
        Ok(CheckCampaignResponse {
            pass,
            prerequisites: prerequisites
                .into_iter()
                .map(campaign_documents::api_prerequisite_check)
                .collect(),
        })
    }

    async fn preview_campaign(
        &self,
        preview: PreviewCampaignRequest,
    ) -> Result<PreviewCampaignResponse, Problem> {
        if preview.recipients.len() > PREVIEW_MAX {
            return Err(Problem::new(
                Code::Unprocessable,
                "recipients: a preview is limited to 100 recipients",
            ));
        }
        Ok(PreviewCampaignResponse {
            messages: self.render_previews(preview).await?,
        })
    }

    async fn put_audience_part(
        &self,
        audience: &str,
        number: u32,
        part: PutAudiencePartRequest,
    ) -> Result<(), Problem> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !(1..=AUDIENCE_MAX).contains(&audience.len()) || !audience.bytes().all(is_name) {
            return Err(invalid_field(
                "audience",
                "must be 1 to 100 letters, digits, _ or -",
            ));
        }
        if number > PART_MAX {
            return Err(invalid_field(
                "number",
                format!("{number} is out of range: must be 0 to {PART_MAX}"),
            ));
        }
        let recipients = part
            .recipients
            .into_iter()
            .map(parse_recipient)
            .collect::<Result<Vec<_>, _>>()?;
        self.campaigns_in_scope()
            .put_audience_part(audience, number, &recipients)
            .await
            .map_err(campaign_problem)
    }

    async fn deploy_campaign(
        &self,
        deploy: DeployCampaignRequest,
    ) -> Result<DeployCampaignResponse, Problem> {
        let DeployCampaignRequest {
            campaign,
            audience,
            key,
            previous_recipients,
            by,
        } = deploy;
        check_length("key", key.as_deref().unwrap_or_default(), KEY_MAX)?;
        if key.as_deref() == Some("") {
            return Err(Problem::new(
                Code::Unprocessable,
                "key: must not be empty; omit it to deploy without an idempotency key",
            ));
        }
        let campaign = Arc::new(parse_campaign(&campaign)?);
        let campaigns = self.campaigns_in_scope();
        let audience = campaigns
            .read_audience(&audience)
            .await
            .map_err(campaign_problem)?;
        let scheduled_for = campaign
            .schedule
            .start_time()
            .map_err(|error| invalid_field("schedule", error))?;
        let deployment = CampaignDeployment {
            campaign_id: campaign.id.as_str().into(),
            channel: campaign.channel,
            asset: campaign.asset_version(),
            document: campaign.to_document().into(),
            scheduled_for,
            idempotency_key: key,
            already_reached: match previous_recipients {
                PreviousRecipientsPolicy::Reject => RepeatSendPolicy::Refuse,
                PreviousRecipientsPolicy::Exclude => RepeatSendPolicy::Exclude,
                PreviousRecipientsPolicy::Resend => RepeatSendPolicy::Resend,
            },
            deployed_by: self.audit_actor(by.as_deref())?,
        };
        // A client that received no response repeats the request and must get the same run,
        // whatever has changed since: so look for the run before the checks.
        if let Some(made) = campaigns
            .find_deployed_run(&deployment, &audience)
            .await
            .map_err(campaign_problem)?
        {
            return Ok(api_deployment(&made));
        }
        let now = self.client.store().now().await.map_err(store_problem)?;
        let budget = RequestBudget::new(RequestLimits::CHECK);
        let checks = self
            .check_audience(&campaigns, &campaign, &audience, (now, &budget))
            .await?;
        let prerequisites = require_prerequisites(checks)?;
        let made = campaigns
            .deploy_campaign(&deployment, &audience, &EntropySource::default())
            .await
            .map_err(campaign_problem)?;
        Ok(DeployCampaignResponse {
            prerequisites,
            ..api_deployment(&made)
        })
    }

    async fn list_campaign_runs(
        &self,
        listing: ListCampaignRunsQuery,
    ) -> Result<CampaignRunPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let after = parse_page_cursor(listing.after.as_deref(), TimestampCursor::parse)?;
        let status = listing.status.map(campaign_documents::campaign_run_status);
        let rows = self
            .campaigns_in_scope()
            .list_runs(listing.campaign.as_deref(), status, after.as_ref(), limit)
            .await;
        let rows = rows.map_err(campaign_problem)?;
        let next = rows.last().filter(|_| rows.len() == limit);
        let next = next.map(|last| {
            TimestampCursor {
                at: last.created_at,
                id: last.id.clone(),
            }
            .to_string()
        });
        Ok(CampaignRunPage {
            runs: rows
                .iter()
                .map(campaign_documents::api_campaign_run_summary)
                .collect::<Vec<CampaignRunSummary>>(),
            next,
        })
    }

    async fn get_campaign_run(&self, run: &str) -> Result<CampaignRunView, Problem> {
        let campaigns = self.campaigns_in_scope();
        let row = campaigns.find_run(run).await.map_err(campaign_problem)?;
        self.load_campaign_run(&campaigns, row).await
    }

    async fn list_audit_entries(
        &self,
        run: &str,
        listing: ListAuditEntriesQuery,
    ) -> Result<CampaignAuditPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let campaigns = self.campaigns_in_scope();
        let row = campaigns.find_run(run).await.map_err(campaign_problem)?;
        let rows = campaigns
            .list_audit_entries(&row.id, listing.after.unwrap_or(0), limit)
            .await
            .map_err(campaign_problem)?;
        let next = rows
            .last()
            .filter(|_| rows.len() == limit)
            .and_then(|last| last.entry_id.0);
        let entry = |row: tables::AuditEntryRow| {
            let detail = row
                .detail
                .as_deref()
                .map(parse_json)
                .transpose()?
                .unwrap_or_default();
            let (event, at) = (row.event.to_string(), row.created_at.to_string());
            Ok(CampaignAuditEntry {
                entry: row.entry_id.0.unwrap_or(0),
                event,
                at,
                detail,
            })
        };
        Ok(CampaignAuditPage {
            entries: rows
                .into_iter()
                .map(entry)
                .collect::<Result<_, Problem>>()?,
            next,
        })
    }

    async fn control_campaign_run(
        &self,
        run: &str,
        control: CampaignControl,
        by: OperatorActionRequest,
    ) -> Result<CampaignRunView, Problem> {
        let (campaigns, by) = (
            self.campaigns_in_scope(),
            self.audit_actor(by.by.as_deref())?,
        );
        let run = campaigns.find_run(run).await.map_err(campaign_problem)?.id;
        let row = match control {
            CampaignControl::Active => campaigns.resume_run(&run, &by).await,
            CampaignControl::Paused => campaigns.pause_run(&run, &by).await,
            CampaignControl::Cancelled => campaigns.cancel_run(&run, &by).await,
        };
        self.load_campaign_run(&campaigns, row.map_err(campaign_problem)?)
            .await
    }

    async fn retry_campaign_run(
        &self,
        run: &str,
        by: OperatorActionRequest,
    ) -> Result<DeployCampaignResponse, Problem> {
        let (campaigns, by) = (
            self.campaigns_in_scope(),
            self.audit_actor(by.by.as_deref())?,
        );
        let run = campaigns.find_run(run).await.map_err(campaign_problem)?.id;
        Ok(api_deployment(
            &campaigns
                .retry_run(&run, &by, &EntropySource::default())
                .await
                .map_err(campaign_problem)?,
        ))
    }

    async fn list_outbox_items(
        &self,
        listing: ListOutboxItemsQuery,
    ) -> Result<OutboxItemPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let campaigns = self.campaigns_in_scope();
        let run = campaigns
            .find_run(&listing.run)
            .await
            .map_err(campaign_problem)?
            .id;
        let matches_filter = |row: &tables::OutboxItemRow| {
            listing
                .state
                .is_none_or(|state| campaign_documents::api_item_state(row) == state)
                && listing
                    .recipient
                    .as_deref()
                    .is_none_or(|recipient| recipient == &*row.recipient_id)
        };
        let rows = campaigns
            .list_items(&run, matches_filter, listing.after.as_deref(), limit)
            .await
            .map_err(campaign_problem)?;
        let next = rows
            .last()
            .filter(|_| rows.len() == limit)
            .map(|last| last.id.to_string());
        Ok(OutboxItemPage {
            items: rows
                .iter()
                .map(campaign_documents::api_outbox_item)
                .collect(),
            next,
        })
    }

    async fn list_in_doubt_items(
        &self,
        listing: ListInDoubtItemsQuery,
    ) -> Result<OutboxItemPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let after = parse_page_cursor(listing.after.as_deref(), TimestampCursor::parse)?;
        let (rows, next) = self
            .campaigns_in_scope()
            .list_in_doubt(after.as_ref(), limit)
            .await
            .map_err(campaign_problem)?;
        Ok(OutboxItemPage {
            items: rows
                .iter()
                .map(campaign_documents::api_outbox_item)
                .collect(),
            next: next.map(|it| it.to_string()),
        })
    }

    async fn settle_item(
        &self,
        item: &str,
        settle: SettleItemRequest,
    ) -> Result<OutboxItemView, Problem> {
        let SettleItemRequest {
            resolution,
            reason,
            message_id,
            by,
        } = settle;
        check_length(
            "messageId",
            message_id.as_deref().unwrap_or_default(),
            ID_MAX,
        )?;
        let resolution = parse_resolution(resolution, message_id, &reason)?;
        let by = self.audit_actor(by.as_deref())?;
        let row = self
            .campaigns_in_scope()
            .resolve_item(item, &resolution, &by, &reason)
            .await
            .map_err(campaign_problem)?;
        Ok(campaign_documents::api_outbox_item(&row))
    }

    async fn settle_items(
        &self,
        settle: SettleItemsRequest,
    ) -> Result<SettleItemsResponse, Problem> {
        let SettleItemsRequest {
            items,
            resolution,
            reason,
            by,
        } = settle;
        if !(1..=SETTLE_ITEMS_MAX).contains(&items.len()) {
            let detail = format!(
                "items: {} item ids given, but 1 to {SETTLE_ITEMS_MAX} are allowed",
                items.len()
            );
            return Err(Problem::new(Code::Unprocessable, detail));
        }
        let resolution = parse_resolution(resolution, None, &reason)?;
        let by = self.audit_actor(by.as_deref())?;
        let outcomes = self
            .campaigns_in_scope()
            .resolve_items(&items, &resolution, &by, &reason)
            .await
            .map_err(campaign_problem)?;
        let mut settlement = SettleItemsResponse {
            settled: Vec::new(),
            rejected: Vec::new(),
        };
        for (item, outcome) in outcomes {
            match outcome.map_err(campaign_problem) {
                Ok(row) => settlement
                    .settled
                    .push(campaign_documents::api_outbox_item(&row)),
                Err(Problem { code, detail, .. }) => {
                    settlement
                        .rejected
                        .push(UnsettledItem { item, code, detail })
                }
            }
        }
        Ok(settlement)
    }

    async fn list_jobs(&self, listing: ListJobsQuery) -> Result<JobPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let after = parse_page_cursor(listing.after.as_deref(), JobCursor::parse)?;
        let campaigns = self.campaigns_in_scope();
        let run = match &listing.run {
            Some(run) => Some(
                campaigns
                    .find_run(run)
                    .await
                    .map_err(campaign_problem)?
                    .id
                    .to_string(),
            ),
            None => None,
        };
        let status = listing.status.map(campaign_documents::job_status);
        let rows = campaigns
            .list_jobs(
                &JobFilter {
                    run_id: run,
                    status,
                },
                after.as_ref(),
                limit,
            )
            .await
            .map_err(campaign_problem)?;
        let next = rows
            .last()
            .filter(|_| rows.len() == limit)
            .map(|last| JobCursor::from_job(last).to_string());
        Ok(JobPage {
            jobs: rows
                .iter()
                .map(campaign_documents::api_campaign_job)
                .collect(),
            next,
        })
    }

    async fn redrive_job(
        &self,
        job: &str,
        by: OperatorActionRequest,
    ) -> Result<CampaignJob, Problem> {
        let by = self.audit_actor(by.by.as_deref())?;
        Ok(campaign_documents::api_campaign_job(
            &self
                .campaigns_in_scope()
                .redrive_job(job, &by)
                .await
                .map_err(campaign_problem)?,
        ))
    }

    async fn list_suppressions(
        &self,
        listing: ListSuppressionsQuery,
    ) -> Result<SuppressionPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let rows = self
            .campaigns_in_scope()
            .list_suppressions(
                delivery_channel(listing.channel),
                listing.after.as_deref(),
                limit,
            )
            .await;
        let rows = rows.map_err(campaign_problem)?;
        let next = rows
            .last()
            .filter(|_| rows.len() == limit)
            .map(|last| last.address.to_string());
        Ok(SuppressionPage {
            suppressions: rows
                .iter()
                .map(campaign_documents::api_suppression_entry)
                .collect(),
            next,
        })
    }

    async fn add_suppression(
        &self,
        suppress: AddSuppressionRequest,
    ) -> Result<SuppressionEntry, Problem> {
        let AddSuppressionRequest {
            channel,
            address,
            reason,
        } = suppress;
        check_length("address", &address, ADDRESS_MAX)?;
        check_length("reason", &reason, REASON_MAX)?;
        let address = normalize_address(channel, &address)?;
        let row = self
            .campaigns_in_scope()
            .add_suppression(delivery_channel(channel), &address, &reason)
            .await
            .map_err(campaign_problem)?;
        Ok(campaign_documents::api_suppression_entry(&row))
    }

    async fn remove_suppression(
        &self,
        channel: ChannelName,
        address: &str,
    ) -> Result<RemoveSuppressionResponse, Problem> {
        let address = normalize_address(channel, address)?;
        let was_listed = self
            .campaigns_in_scope()
            .remove_suppression(delivery_channel(channel), &address)
            .await
            .map_err(campaign_problem)?;
        Ok(RemoveSuppressionResponse {
            channel,
            address,
            was_listed,
        })
    }
}
