//! Those who want nothing more by a channel.

use onward_journal::Text;
use onward_store::tables::Suppression;
use onward_store::{Commit, Error, Field as _, Key, Outcome, Record as _, Scan};

use crate::campaigns::{Campaigns, Refused, Scope};
use crate::lists::chosen;

impl Campaigns {
    /// Reaches somebody no more by this channel.
    pub async fn suppress(&self, channel: &str, address: &str, reason: &str) -> Result<Suppression, Refused> {
        let created_at = self.store.now().await?;
        let Scope { tenant, workspace } = self.scope.clone();
        let row = Suppression {
            tenant_id: tenant,
            workspace_id: workspace,
            channel: channel.into(),
            address: address.to_lowercase().into(),
            reason: reason.into(),
            created_at,
        };
        let receipt = self.store.commit(Commit::new().insert_or_keep(&row)).await?;
        match receipt.changes.into_iter().next() {
            // Since when, and why, is not said anew.
            Some(Outcome::Kept(kept)) => Ok(Suppression::from_row(&kept.row).map_err(Error::Corrupt)?),
            _ => Ok(row),
        }
    }

    /// Reaches somebody again by this channel. Tells whether they were not to be reached.
    pub async fn allow(&self, channel: &str, address: &str) -> Result<bool, Refused> {
        let Scope { tenant, workspace } = &self.scope;
        let (channel, address) = (Text::from(channel), Text::from(address.to_lowercase()));
        let key = Key(vec![tenant.to_value(), workspace.to_value(), channel.to_value(), address.to_value()]);
        let was_listed = self.store.row(Suppression::TABLE, key.clone()).await?.is_some();
        self.store.commit(Commit::new().remove::<Suppression>(key)).await?;
        Ok(was_listed)
    }

    /// Those who want nothing more by a channel, in the order of their addresses.
    pub async fn suppressed(
        &self,
        channel: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Suppression>, Refused> {
        let Scope { tenant, workspace } = &self.scope;
        let channel = Text::from(channel);
        let mut scan = Scan::all::<Suppression>().equal(tenant).equal(workspace).equal(&channel);
        if let Some(after) = after {
            scan.after = Some(scan.equal.iter().cloned().chain([Text::from(after).to_value()]).collect());
        }
        Ok(chosen(&*self.store, scan, |_| true, limit).await?)
    }
}
