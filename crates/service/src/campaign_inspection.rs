//! Reads the state of campaigns for the API: deploy prerequisites, the view of a run and the
//! findings of the doctor.

use std::io;

use onward_api::RawJson;
use onward_api::campaign::{
    ActiveJobs, CampaignRunView, CampaignRunWait, MessagePreview, PrerequisiteCheck,
    PreviewCampaignRequest,
};
use onward_api::finding::{DoctorFinding, FindingCode};
use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::{
    CampaignDoctorStats, CampaignFinding, CampaignFindingKind, RunActivity, ScopedCampaigns,
    examine_runs,
};
use onward_campaign_file::{
    Campaign, DeployCheckInput, DeployPrerequisite, ProviderRef, TemplateComposer, check_campaign,
};
use onward_store::tables::CampaignRunRow;

use super::campaign_input::{parse_campaign, parse_recipient};
use super::problems::{campaign_problem, store_problem};
use super::template_workers::{RequestBudget, RequestLimits};
use super::{ApiService, campaign_documents};

/// Maximum length of all messages of one preview in bytes.
const PREVIEW_BYTES_MAX: usize = 32 << 20;

impl ApiService {
    /// Examines the campaign runs for the doctor and reports each problem as a finding.
    pub(super) async fn examine_campaigns(
        &self,
        report: &mut (dyn FnMut(&DoctorFinding) -> io::Result<()> + Send),
    ) -> Result<CampaignDoctorStats, Problem> {
        let campaigns = self.campaigns_in_scope();
        let scope = self.scope_filter().map(|_| campaigns.scope());
        let mut forward = |CampaignFinding {
                               run_id: run,
                               kind,
                               message,
                           }: CampaignFinding| {
            let code = match kind {
                CampaignFindingKind::Missing => FindingCode::CampaignIncomplete,
                CampaignFindingKind::Inconsistent => FindingCode::CampaignInconsistent,
                CampaignFindingKind::Stuck => FindingCode::CampaignStuck,
                CampaignFindingKind::InDoubt => FindingCode::CampaignInDoubt,
                CampaignFindingKind::Overdue => FindingCode::CampaignOverdue,
            };
            drop(report(&DoctorFinding::for_campaign_run(
                run.to_string(),
                code,
                message,
            )));
        };
        examine_runs(&**self.client.store(), scope, &mut forward)
            .await
            .map_err(store_problem)
    }

    /// Runs work with templates on the threads for it.
    pub(super) async fn run_template_work<T: Send + 'static>(
        &self,
        budget: &RequestBudget,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let tenant = &self.client.scope().tenant;
        self.template_workers
            .run(&tenant.to_string(), budget, work)
            .await
    }

    /// Checks the deploy prerequisites of a campaign that do not depend on its audience.
    pub(super) async fn check_prerequisites(
        &self,
        campaign: RawJson,
    ) -> Result<Vec<DeployPrerequisite>, Problem> {
        let now = self.client.store().now().await.map_err(store_problem)?;
        let (budget, service) = (RequestBudget::new(RequestLimits::CHECK), self.clone());
        let check = move || {
            let campaign = parse_campaign(&campaign)?;
            let input = DeployCheckInput {
                now,
                sample: &[],
                report: None,
            };
            let checks = check_campaign(&campaign, &input);
            Ok(service.add_provider_checks(&campaign, checks))
        };
        self.run_template_work(&budget, check).await?
    }

    /// Renders the messages of a preview.
    pub(super) async fn render_previews(
        &self,
        preview: PreviewCampaignRequest,
    ) -> Result<Vec<MessagePreview>, Problem> {
        let budget = RequestBudget::new(RequestLimits::PREVIEW);
        let render_budget = budget.render_budget().clone();
        let render = move || {
            let composer = TemplateComposer::new(&parse_campaign(&preview.campaign)?)
                .map_err(|error| Problem::new(Code::Unprocessable, error.to_string()))?;
            let (mut messages, mut bytes) = (Vec::new(), 0);
            for recipient in preview.recipients {
                if render_budget.is_over() {
                    break;
                }
                let message =
                    campaign_documents::preview_message(&composer, parse_recipient(recipient)?);
                bytes += message.parts.iter().map(|it| it.text.len()).sum::<usize>();
                if bytes > PREVIEW_BYTES_MAX {
                    return Err(Problem::new(
                        Code::Unprocessable,
                        format!(
                            "the messages of a preview are limited to {} MiB together: send fewer \
                             recipients in one request",
                            PREVIEW_BYTES_MAX >> 20
                        ),
                    ));
                }
                messages.push(message);
            }
            Ok(messages)
        };
        self.run_template_work(&budget, render).await?
    }

    /// Adds the checks of the campaign's provider, if this service has a provider registry.
    pub(super) fn add_provider_checks(
        &self,
        campaign: &Campaign,
        mut all: Vec<DeployPrerequisite>,
    ) -> Vec<DeployPrerequisite> {
        all.extend(
            self.providers
                .as_ref()
                .map(|registry| {
                    registry.check_campaign(campaign, &self.client.scope().tenant.to_string())
                })
                .unwrap_or_default(),
        );
        all
    }

    /// Loads the view of a run: its item counts, its retry, and what it does or waits for.
    pub(super) async fn load_campaign_run(
        &self,
        campaigns: &ScopedCampaigns,
        row: CampaignRunRow,
    ) -> Result<CampaignRunView, Problem> {
        let counts = campaigns
            .count_run_items(&row.id)
            .await
            .map_err(campaign_problem)?;
        let retried_by = campaigns
            .find_retry_run(&row)
            .await
            .map_err(campaign_problem)?
            .map(|run| run.id.to_string());
        let provider =
            match Campaign::from_document(&row.document).map(|campaign| campaign.provider) {
                Ok(ProviderRef::Named(name)) => name,
                Ok(ProviderRef::Inline(definition)) => definition.keys().cloned().collect(),
                Err(_) => String::new(),
            };
        let (mut active_jobs, mut waits) = (None, None);
        match campaigns
            .run_activity(&row)
            .await
            .map_err(campaign_problem)?
        {
            Some(RunActivity::InProgress { jobs, lease_until }) => {
                active_jobs = Some(ActiveJobs {
                    jobs,
                    leased_until: lease_until.to_string(),
                })
            }
            Some(RunActivity::WaitingUntil(until, error)) => {
                waits = Some(CampaignRunWait {
                    until: until.to_string(),
                    error: error.map(|error| error.to_string()),
                });
            }
            None => {}
        }
        Ok(CampaignRunView {
            summary: campaign_documents::api_campaign_run_summary(&row),
            counts: campaign_documents::api_item_counts(&counts),
            provider,
            retried_by,
            active_jobs,
            waits,
        })
    }
}

/// Returns the prerequisite checks if all pass. Fails with the list of unmet ones otherwise.
pub(super) fn require_prerequisites(
    prerequisites: Vec<DeployPrerequisite>,
) -> Result<Vec<PrerequisiteCheck>, Problem> {
    let unmet = prerequisites
        .iter()
        .filter(|it| !it.pass)
        .map(|it| format!("{}: {}", it.id, it.message));
    let unmet = unmet.collect::<Vec<_>>().join("; ");
    let prerequisites = prerequisites
        .into_iter()
        .map(campaign_documents::api_prerequisite_check)
        .collect();
    if unmet.is_empty() {
        return Ok(prerequisites);
    }
    Err(Problem {
        prerequisites,
        ..Problem::new(Code::Unprocessable, unmet)
    })
}
