//! The suppression list: addresses that must not be reached by a channel.

use onward_base::SharedText;
use onward_store::tables::SuppressionRow;
use onward_store::{
    ChangeOutcome, ColumnCodec as _, Commit, Error, RowKey, TableRecord as _, TableScan,
};

use crate::listing::scan_filtered;
use crate::scoped_campaigns::{CampaignError, CampaignScope, ScopedCampaigns};

impl ScopedCampaigns {
    /// Adds an address to the suppression list of a channel. Returns the existing entry if the
    /// address is already on it.
    pub async fn add_suppression(
        &self,
        channel: &str,
        address: &str,
        reason: &str,
    ) -> Result<SuppressionRow, CampaignError> {
        let created_at = self.store.now().await?;
        let CampaignScope { tenant, workspace } = self.scope.clone();
        let row = SuppressionRow {
            tenant_id: tenant,
            workspace_id: workspace,
            channel: channel.into(),
            address: address.to_lowercase().into(),
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
                Ok(SuppressionRow::from_row(&kept.row).map_err(Error::Corrupt)?)
            }
            _ => Ok(row),
        }
    }

    /// Removes an address from the suppression list of a channel. Returns whether it was on the
    /// list.
    pub async fn remove_suppression(
        &self,
        channel: &str,
        address: &str,
    ) -> Result<bool, CampaignError> {
        let CampaignScope { tenant, workspace } = &self.scope;
        let (channel, address) = (
            SharedText::from(channel),
            SharedText::from(address.to_lowercase()),
        );
        let key = RowKey(vec![
            tenant.to_value(),
            workspace.to_value(),
            channel.to_value(),
            address.to_value(),
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
        channel: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SuppressionRow>, CampaignError> {
        let CampaignScope { tenant, workspace } = &self.scope;
        let channel = SharedText::from(channel);
        let mut scan = TableScan::all_rows::<SuppressionRow>()
            .where_equal(tenant)
            .where_equal(workspace)
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
