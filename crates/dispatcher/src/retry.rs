//! Trying a campaign again: another run, which reaches those whom the first did not. There is one such run of each, so that
//! nobody is reached by two; whoever was not reached by it either is reached by one of its own.

use onward_dispatch::{Control, Reason, RunStatus, Standing};
use onward_journal::Text;
use onward_store::tables::{CampaignRun, OutboxItem};
use onward_store::{Commit, Error, Field as _, Key, Kind, Records as _, Store};

use crate::audience::{self, Audience, Gathering, Recipient};
use crate::campaigns::{Refused, Scope};
use crate::deploy::{Deployed, deployed, derived_id, launch};
use crate::entropy::Entropy;
use crate::{finish, rows};

/// The id of the run that tries another again.
fn id_of_retry(run: &CampaignRun) -> Text {
    derived_id(&[&run.tenant_id, &run.workspace_id, &run.id, "retry"])
}

/// The run that tries this one again, if there is one.
pub(crate) async fn retry_of(store: &dyn Store, run: &CampaignRun) -> Result<Option<CampaignRun>, Error> {
    let found: Option<(CampaignRun, u64)> = store.get(Key(vec![id_of_retry(run).to_value()])).await?;
    Ok(found.map(|(run, _)| run))
}

/// Tries a campaign run again that is over. Asked a second time, the run is the same.
pub(crate) async fn retry(
    store: &dyn Store,
    scope: &Scope,
    (run, version): (CampaignRun, u64),
    by: &str,
    entropy: &Entropy,
) -> Result<Deployed, Refused> {
    if let Some(existing) = retry_of(store, &run).await? {
        return Ok(deployed(&existing, true));
    }
    if !rows::run_status(&run).is_over() {
        let tally = finish::tally(store, &run.id).await?;
        let is_undecided = tally.open() == 0 && tally.in_doubt > 0;
        let id = run.id.to_string();
        return Err(if is_undecided { Refused::Undecided(id, tally.in_doubt) } else { Refused::NotOver(id) });
    }
    let audience = unserved(store, scope, &run, entropy).await?;
    let now = store.now().await?;
    let next = CampaignRun {
        id: id_of_retry(&run),
        status: RunStatus::Queued.as_str().into(),
        control: Control::Active.as_str().into(),
        audience_id: audience.id.clone(),
        items: audience.items(),
        jobs: u32::try_from(audience.parts.len()).unwrap_or(u32::MAX),
        scheduled_for: now,
        retry_of: Some(run.id.clone()),
        wake_at: now,
        created_at: now,
        ended_at: None,
        ..run.clone()
    };
    // Whoever redrives one of its jobs at the same moment changes the run as well: one of the two is refused.
    let commit = Commit::new().update(&run, version);
    let refused = match launch(store, commit, &next, &audience, by).await {
        Ok(deployed) => return Ok(deployed),
        Err(refused) => refused,
    };
    match retry_of(store, &run).await? {
        // Somebody was quicker.
        Some(existing) => Ok(deployed(&existing, true)),
        None if matches!(&refused, Refused::Store(error) if error.kind() == Kind::Conflict) => {
            Err(Refused::AtWork(run.id.to_string()))
        }
        None => Err(refused),
    }
}

/// An audience of those whom a run did not reach, and who are not known to want it that way.
async fn unserved(store: &dyn Store, scope: &Scope, run: &CampaignRun, entropy: &Entropy) -> Result<Audience, Refused> {
    let first = audience::read(store, &run.audience_id, 0).await?;
    let part_items = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut gathering = Gathering::begin(store, scope.clone(), part_items, entropy);
    for number in 0..run.jobs {
        let recipients = audience::read(store, &run.audience_id, number).await?;
        let job = rows::job_id(&run.id, number);
        for recipient in missed(recipients, &rows::items(store, &job).await?) {
            gathering.add(recipient).await?;
        }
    }
    gathering.finish().await
}

/// Those of a job whom nothing has reached. Whoever has no row is somebody whom another stands for.
fn missed(recipients: Vec<Recipient>, items: &[(OutboxItem, u64)]) -> Vec<Recipient> {
    let mut recipients: Vec<Option<Recipient>> = recipients.into_iter().map(Some).collect();
    let is_missed = |row: &OutboxItem| match rows::standing(row) {
        Standing::Failed => true,
        Standing::Skipped => row.reason.as_deref() == Some(Reason::Cancelled.as_str()),
        _ => false,
    };
    let missed = items.iter().filter(|(row, _)| is_missed(row)).filter_map(|(row, _)| rows::position(&row.id));
    missed.filter_map(|position| recipients.get_mut(position)?.take()).collect()
}
