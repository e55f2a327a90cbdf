//! Removes audiences that were stored and never deployed: whoever was to deploy them was killed, or thought better of it.

use onward_journal::Text;
use onward_store::tables::{AudiencePart, CampaignRun};
use onward_store::{Error, Field as _, Records as _, Scan, Store};

use crate::audience;

/// An audience is deployed within so many milliseconds, or not at all.
pub(crate) const FRESH_MS: u64 = 6 * 86_400_000;

/// And kept for so many: whoever has begun to deploy it by then is done.
const KEPT_MS: u64 = 7 * 86_400_000;

/// Removes the audiences that are too old to be deployed and that no campaign run names.
pub(crate) async fn sweep(store: &dyn Store) -> Result<(), Error> {
    let now = store.now().await?;
    let mut scan = Scan::all::<AudiencePart>().limit(1);
    loop {
        let first: Vec<(AudiencePart, u64)> = store.list(scan.clone()).await?;
        let Some((first, _)) = first.into_iter().next() else { return Ok(()) };
        let id = first.audience_id;
        if first.created_at.plus_ms(KEPT_MS) < now && !is_deployed(store, &id).await? {
            audience::discard(store, &id).await?;
        }
        scan.after = Some(vec![id.to_value(), u32::MAX.to_value()]);
    }
}

async fn is_deployed(store: &dyn Store, audience: &Text) -> Result<bool, Error> {
    let runs = Scan::by::<CampaignRun>(CampaignRun::BY_AUDIENCE).equal(audience).limit(1);
    Ok(!store.rows(runs).await?.is_empty())
}
