//! Simulated operators: they pause and cancel runs, settle items and redrive jobs while faults are
//! injected.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::ItemState;
use onward_campaign_dispatch::{CampaignError, Resolution, ScopedCampaigns, item_state};
use tokio::time::timeout;

use super::CampaignWorld;
use super::provider::DeliveryRecord;

/// Number of actions to draw from; some of them do nothing.
const OPERATOR_ACTIONS: u64 = 12;

impl CampaignWorld {
    /// Performs a random operator action, which may be aborted before it completes.
    pub(super) async fn act_as_operator(&mut self) -> Result<(), String> {
        let people = ScopedCampaigns::new(
            std::sync::Arc::clone(&self.flaky_store) as _,
            self.campaigns.scope().clone(),
        );
        let patience = Duration::from_millis(self.random.draw_below(4_000));
        match self.random.draw_below(OPERATOR_ACTIONS) {
            0 | 1 => drop(timeout(patience, people.pause_run(&self.run, "sim")).await),
            2..5 => drop(timeout(patience, people.resume_run(&self.run, "sim")).await),
            5 if self.may_cancel && self.random.roll_percent(20) => {
                drop(timeout(patience, people.cancel_run(&self.run, "sim")).await);
            }
            6 | 7 => {
                let jobs = self.list_jobs().await?;
                let job = self.random.lock_draw().pick_element(&jobs).id.clone();
                if let Ok(Ok(_)) = timeout(patience, people.redrive_job(&job, "sim")).await {
                    self.report.redriven += 1;
                }
            }
            8..10 => self.settle_in_doubt(&people, patience).await?,
            _ => {}
        }
        Ok(())
    }

    /// Settles items in doubt according to the provider's records, if these are final.
    async fn settle_in_doubt(
        &mut self,
        people: &ScopedCampaigns,
        patience: Duration,
    ) -> Result<(), String> {
        let known = self.provider.delivery_records().clone();
        let items = self.list_items().await?;
        let doubts = items
            .iter()
            .filter(|item| item_state(item) == ItemState::InDoubt);
        let doubts: Vec<_> = doubts
            .filter_map(|item| Some((item, known_delivery(&known, &item.idempotency_key)?)))
            .collect();
        let Some((item, is_taken)) = doubts.first() else {
            return Ok(());
        };
        let verdict = match (is_taken, self.random.roll_percent(50)) {
            (true, _) => Resolution::Sent(None),
            (false, true) => Resolution::Retry,
            (false, false) => Resolution::Failed,
        };
        // Settles the items of the same job with the same answer together.
        let same = doubts
            .iter()
            .filter(|(it, taken)| it.job_id == item.job_id && taken == is_taken);
        let same: Vec<String> = same.map(|(item, _)| item.id.to_string()).collect();
        let said = timeout(
            patience,
            people.resolve_items(&same, &verdict, "sim", "as the provider says"),
        )
        .await;
        if let Ok(Ok(settled)) = said {
            let is_done = |(_, outcome): &(String, Result<_, CampaignError>)| outcome.is_ok();
            self.report.resolutions +=
                u32::try_from(settled.iter().filter(|it| is_done(it)).count()).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

/// Returns whether the provider has accepted a key; `None` while a call with it is in flight.
pub(super) fn known_delivery(
    known: &BTreeMap<SharedText, DeliveryRecord>,
    key: &SharedText,
) -> Option<bool> {
    let it = known.get(key).copied().unwrap_or_default();
    (it.in_flight == 0).then_some(it.deliveries > 0)
}
