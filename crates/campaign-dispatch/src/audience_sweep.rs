//! Deletes audiences that were stored and never deployed, because the client crashed or abandoned
//! the deployment.

use onward_base::SharedText;
use onward_store::tables::{AudiencePartRow, CampaignRunRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, Store, TableScan};

use crate::audience;

/// How long an audience can be deployed after it was stored, in milliseconds: 6 days.
pub(crate) const AUDIENCE_DEPLOYABLE_MS: u64 = 6 * 86_400_000;

/// How long an audience is kept, in milliseconds: 7 days. It is longer than the deployable time, so
/// that a deployment that began in time has finished.
const AUDIENCE_RETENTION_MS: u64 = 7 * 86_400_000;

/// Deletes the audiences that are too old to be deployed and that no campaign run refers to.
pub(crate) async fn sweep_audiences(store: &dyn Store) -> Result<(), Error> {
    let now = store.now().await?;
    let mut scan = TableScan::all_rows::<AudiencePartRow>().with_limit(1);
    loop {
        let first: Vec<(AudiencePartRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((first, _)) = first.into_iter().next() else {
            return Ok(());
        };
        let id = first.audience_id;
        if first.created_at.plus_ms(AUDIENCE_RETENTION_MS) < now && !is_deployed(store, &id).await?
        {
            audience::delete_audience(store, &id).await?;
        }
        scan.after = Some(vec![id.to_value(), u32::MAX.to_value()]);
    }
}

async fn is_deployed(store: &dyn Store, audience: &SharedText) -> Result<bool, Error> {
    let runs = TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_AUDIENCE)
        .where_equal(audience)
        .with_limit(1);
    Ok(!store.scan_rows(runs).await?.is_empty())
}
