//! Reads the state of campaigns for the API: deploy prerequisites, the view of a run and the
//! findings of the doctor.

use std::io;

use onward_api::campaign::{ActiveJobs, CampaignRunView, CampaignRunWait, PrerequisiteCheck};
use onward_api::finding::{DoctorFinding, FindingCode};
use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::{
    CampaignDoctorStats, CampaignFinding, CampaignFindingKind, RunActivity, ScopedCampaigns,
    examine_runs,
};
use onward_campaign_file::{
    Campaign, DeployCheckInput, DeployPrerequisite, ProviderRef, check_campaign,
};
use onward_store::tables::CampaignRunRow;

use super::problems::{campaign_problem, store_problem};
use super::{ApiService, campaign_documents};

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

    /// Checks the deploy prerequisites of a campaign that do not depend on its audience.
    pub(super) async fn check_prerequisites(
        &self,
        campaign: &Campaign,
    ) -> Result<Vec<DeployPrerequisite>, Problem> {
        let now = self.client.store().now().await.map_err(store_problem)?;
        Ok(self.add_provider_checks(
            campaign,
            check_campaign(
                campaign,
                &DeployCheckInput {
                    now,
                    sample: &[],
                    report: None,
                },
            ),
        ))
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
                .map(|registry| registry.check_campaign(campaign))
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
