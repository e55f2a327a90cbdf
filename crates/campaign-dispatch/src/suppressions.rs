//! The suppression list: addresses to which a channel must not send.

use futures_util::future::join_all;
use onward_base::SharedText;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use onward_store::tables::{CampaignRunRow, SuppressionRow};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, Commit, Error, RowKey, Store, TableRecord as _, TableScan,
};

use crate::campaign_error::CampaignError;
use crate::listing::scan_filtered;
use crate::scope_columns::ScopeColumns;
use crate::scoped_campaigns::ScopedCampaigns;

impl ScopedCampaigns {
    /// Adds an address to the suppression list of a channel. Returns the existing entry if the
    /// address is already on it.
    pub async fn add_suppression(
        &self,
        channel: DeliveryChannel,
        address: &str,
        reason: &str,
    ) -> Result<SuppressionRow, CampaignError> {
        let created_at = self.store.now().await?;
        let ScopeColumns {
            tenant_id,
            workspace_id,
        } = self.columns.clone();
        let row = SuppressionRow {
            tenant_id,
            workspace_id,
            channel,
            address: listed_form(address),
            reason: reason.into(),
            created_at,
        };
        let receipt = self
            .store
            .commit(Commit::new().insert_or_keep(&row))
            .await?;
        match receipt.changes.into_iter().next() {
            // The existing entry keeps its time and reason.
            Some(ChangeOutcome::Kept(kept)) => {
                Ok(SuppressionRow::from_row(&kept.row).map_err(Error::corrupt)?)
            }
            _ => Ok(row),
        }
    }

    /// Removes an address from the suppression list of a channel. Returns whether it was on the
    /// list.
    pub async fn remove_suppression(
        &self,
        channel: DeliveryChannel,
        address: &str,
    ) -> Result<bool, CampaignError> {
        let key = RowKey(vec![
            self.columns.tenant_id.to_value(),
            self.columns.workspace_id.to_value(),
            channel.to_value(),
            listed_form(address).to_value(),
        ]);
        let was_listed = self
            .store
            .read_row(SuppressionRow::TABLE, key.clone())
            .await?
            .is_some();
        self.store
            .commit(Commit::new().delete_if_exists::<SuppressionRow>(key))
            .await?;
        Ok(was_listed)
    }

    /// Lists the suppression list of a channel, ordered by address, starting after the address
    /// `after`.
    pub async fn list_suppressions(
        &self,
        channel: DeliveryChannel,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SuppressionRow>, CampaignError> {
        let mut scan = TableScan::all_rows::<SuppressionRow>()
            .where_equal(&self.columns.tenant_id)
            .where_equal(&self.columns.workspace_id)
            .where_equal(&channel);
        if let Some(after) = after {
            scan.after = Some(
                scan.equal
                    .iter()
                    .cloned()
                    .chain([SharedText::from(after).to_value()])
                    .collect(),
            );
        }
        Ok(scan_filtered(&*self.store, scan, |_| true, limit).await?)
    }
}

/// The positions of the recipients that are on the suppression list of the run's channel.
pub(crate) async fn find_suppressed(
    store: &dyn Store,
    run: &CampaignRunRow,
    recipients: &[AudienceRecipient],
) -> Result<Vec<usize>, Error> {
    let (tenant, workspace, channel) = (&run.tenant_id, &run.workspace_id, &run.channel);
    let first = TableScan::all_rows::<SuppressionRow>()
        .where_equal(tenant)
        .where_equal(workspace)
        .where_equal(channel)
        .with_limit(1);
    if store.scan_rows(first).await?.is_empty() {
        return Ok(Vec::new());
    }
    let check = async |position: usize| -> Result<Option<usize>, Error> {
        let address = listed_form(&recipients[position].address);
        let key = RowKey(vec![
            tenant.to_value(),
            workspace.to_value(),
            channel.to_value(),
            address.to_value(),
        ]);
        Ok(store
            .read_row(SuppressionRow::TABLE, key)
            .await?
            .map(|_| position))
    };
    let checks = join_all((0..recipients.len()).map(check)).await;
    checks.into_iter().filter_map(Result::transpose).collect()
}

/// The form in which an address is listed and looked up.
fn listed_form(address: &str) -> SharedText {
    address.to_lowercase().into()
}
