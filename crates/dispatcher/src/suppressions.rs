//! Those who want nothing more by a channel.

use onward_journal::Text;
use onward_store::tables::Suppression;
use onward_store::{Commit, Field as _, Key, Scan};

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
        self.store.commit(Commit::new().insert_or_keep(&row)).await?;
        Ok(row)
    }

    /// Reaches somebody again by this channel.
    pub async fn allow(&self, channel: &str, address: &str) -> Result<(), Refused> {
        let Scope { tenant, workspace } = &self.scope;
        let (channel, address) = (Text::from(channel), Text::from(address.to_lowercase()));
        let key = Key(vec![tenant.to_value(), workspace.to_value(), channel.to_value(), address.to_value()]);
        self.store.commit(Commit::new().remove::<Suppression>(key)).await?;
        Ok(())
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
