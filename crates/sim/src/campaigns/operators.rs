//! Simulated operators: they pause and cancel runs, settle items and redrive jobs while faults are
//! injected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::ItemState;
use onward_campaign_dispatch::{CampaignError, Resolution, ScopedCampaigns, item_state};
use tokio::time::timeout;

use super::CampaignWorld;
use super::provider::DeliveryRecord;
use crate::failure::SimFailure;

/// Number of actions to draw from; some of them do nothing.
const OPERATOR_ACTIONS: u64 = 12;

impl CampaignWorld {
    /// Performs a random operator action, which may be aborted before it completes.
    pub(super) async fn act_as_operator(&mut self) -> Result<(), SimFailure> {
        let campaigns = ScopedCampaigns::new(
            Arc::clone(&self.flaky_store) as _,
            self.campaigns.scope().clone(),
        );
        let time_limit = Duration::from_millis(self.random.draw_below(4_000));
        match self.random.draw_below(OPERATOR_ACTIONS) {
            0 | 1 => drop(timeout(time_limit, campaigns.pause_run(&self.run, "sim")).await),
            2..5 => drop(timeout(time_limit, campaigns.resume_run(&self.run, "sim")).await),
            5 if self.may_cancel && self.random.roll_percent(20) => {
                drop(timeout(time_limit, campaigns.cancel_run(&self.run, "sim")).await);
            }
            6 | 7 => {
                let jobs = self.list_jobs().await?;
                let job = self.random.lock_rng().pick_element(&jobs).id.clone();
                if let Ok(Ok(_)) = timeout(time_limit, campaigns.redrive_job(&job, "sim")).await {
                    self.report.redriven += 1;
                }
            }
            8..10 => self.settle_in_doubt(&campaigns, time_limit).await?,
            _ => {}
        }
        Ok(())
    }

    /// Settles items in doubt according to the provider's records, if these are final.
    async fn settle_in_doubt(
        &mut self,
        campaigns: &ScopedCampaigns,
        time_limit: Duration,
    ) -> Result<(), SimFailure> {
        let records = self.provider.delivery_records().clone();
        let items = self.list_items().await?;
        let in_doubt = items
            .iter()
            .filter(|item| item_state(item) == ItemState::InDoubt);
        let in_doubt: Vec<_> = in_doubt
            .filter_map(|item| Some((item, known_delivery(&records, &item.idempotency_key)?)))
            .collect();
        let Some((item, is_delivered)) = in_doubt.first() else {
            return Ok(());
        };
        let resolution = match (is_delivered, self.random.roll_percent(50)) {
            (true, _) => Resolution::Sent(None),
            (false, true) => Resolution::Retry,
            (false, false) => Resolution::Failed,
        };
        // Settles the items of the same job with the same outcome together.
        let same = in_doubt
            .iter()
            .filter(|(other, delivered)| other.job_id == item.job_id && delivered == is_delivered);
        let same: Vec<String> = same.map(|(item, _)| item.id.to_string()).collect();
        let result = timeout(
            time_limit,
            campaigns.resolve_items(&same, &resolution, "sim", "records of the provider"),
        )
        .await;
        if let Ok(Ok(settled)) = result {
            let is_settled = |(_, outcome): &(String, Result<_, CampaignError>)| outcome.is_ok();
            self.report.resolutions +=
                u32::try_from(settled.iter().filter(|item| is_settled(item)).count())
                    .unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

/// Returns whether the provider has accepted a key; `None` while a call with it is in flight.
pub(super) fn known_delivery(
    records: &BTreeMap<SharedText, DeliveryRecord>,
    key: &SharedText,
) -> Option<bool> {
    let record = records.get(key).copied().unwrap_or_default();
    (record.in_flight == 0).then_some(record.deliveries > 0)
}
