//! Answers of a provider that arrive after the worker has lost its lease: another worker has marked
//! the items in doubt, and the answer settles those that the provider accepted.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_campaign_core::{ItemChange, ItemState};
use tokio::time::sleep;

use super::JobRunner;
use crate::campaign_error::CampaignError;
use crate::resolution::{self, OperatorDecision, Resolution};
use crate::row_mapping;
use crate::scope_columns::ScopeColumns;

/// How often, and at which interval, the answers are tried to be recorded again while another
/// worker holds the job.
const RETRIES_MAX: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The reason in the audit trail.
const REASON: &str = "the provider accepted the item; its answer came after the lease was lost";

impl JobRunner<'_> {
    /// Records which of the items in doubt the provider has accepted. Whatever happened to an item
    /// since, it was sent. Any other answer is not recorded: there may have been another call
    /// since, which had another outcome. Items that cannot be settled now stay in doubt.
    pub(super) async fn record_late_answers(&self, changes: &BTreeMap<usize, ItemChange>) {
        let scope = ScopeColumns {
            tenant_id: self.run.tenant_id.clone(),
            workspace_id: self.run.workspace_id.clone(),
        };
        let accepted = changes
            .iter()
            .filter(|(_, change)| change.new_state == ItemState::Sent);
        let mut retries_left = RETRIES_MAX;
        for (position, change) in accepted {
            let item = row_mapping::item_id(&self.job.id, *position).to_string();
            let message_id = change.provider_message_id.as_ref();
            let resolution = Resolution::Sent(message_id.map(ToString::to_string));
            while self
                .settle_late_item(&scope, &item, &resolution)
                .await
                .is_err()
            {
                if retries_left == 0 {
                    return;
                }
                retries_left -= 1;
                sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Settles an item if it is in doubt. Fails if another worker holds the job.
    async fn settle_late_item(
        &self,
        scope: &ScopeColumns,
        item: &str,
        resolution: &Resolution,
    ) -> Result<(), JobStillLocked> {
        let decision = OperatorDecision {
            resolution,
            operator: &self.context.worker_name,
            reason: REASON,
        };
        let (store, items) = (&*self.context.store, [item.to_owned()]);
        let settled = resolution::resolve_items(store, scope, &items, decision).await;
        let is_locked = settled.is_ok_and(|settled| {
            settled
                .iter()
                .any(|(_, outcome)| matches!(outcome, Err(CampaignError::JobLocked(..))))
        });
        if is_locked {
            Err(JobStillLocked)
        } else {
            Ok(())
        }
    }
}

/// Another worker holds the job.
struct JobStillLocked;
