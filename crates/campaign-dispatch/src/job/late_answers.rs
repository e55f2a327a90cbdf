//! Answers of a provider that arrive after the worker has lost its lease: another worker has marked
//! the items in doubt, and the answer settles those that the provider accepted.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_campaign_core::{ItemChange, ItemState};
use onward_store::StoreErrorKind;
use tokio::time::sleep;

use super::JobRunner;
use crate::campaign_error::CampaignError;
use crate::resolution::{self, OperatorDecision, Resolution};
use crate::row_mapping;
use crate::scope_columns::ScopeColumns;

/// How often, and at which interval, the worker tries again to record its answers, while another
/// worker holds the job or the store does not answer.
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
            while let Err(error) = self.settle_late_item(&scope, &item, &resolution).await {
                if retries_left == 0 {
                    tracing::warn!(item, %error, "a late answer of the provider is not recorded");
                    return;
                }
                retries_left -= 1;
                sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Settles an item if it is in doubt. Fails if it may succeed later: another worker holds the
    /// job, or the store does not answer.
    async fn settle_late_item(
        &self,
        scope: &ScopeColumns,
        item: &str,
        resolution: &Resolution,
    ) -> Result<(), CampaignError> {
        let decision = OperatorDecision {
            resolution,
            operator: &self.context.worker_name,
            reason: REASON,
        };
        let (store, items) = (&*self.context.store, [item.to_owned()]);
        let settled = resolution::resolve_items(store, scope, &items, decision).await?;
        for (_, outcome) in settled {
            match outcome {
                Ok(_) => tracing::info!(item, "{REASON}"),
                Err(error) if is_temporary(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(item, %error, "a late answer of the provider is not recorded")
                }
            }
        }
        Ok(())
    }
}

fn is_temporary(error: &CampaignError) -> bool {
    match error {
        CampaignError::JobLocked(..) => true,
        CampaignError::Store(error) => matches!(
            error.kind(),
            StoreErrorKind::Retry | StoreErrorKind::Unknown | StoreErrorKind::Conflict
        ),
        _ => false,
    }
}
