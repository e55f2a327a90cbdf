//! Trying a campaign again: another run, which reaches those whom the first did not. There is one such run of each, so that
//! nobody is reached by two; whoever was not reached by it either is reached by one of its own.

use onward_dispatch::{Control, Reason, RunStatus, Standing};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, OutboxItem};
use onward_store::{Commit, Conflict, Error, Field as _, Key, Kind, Records as _, Store};

use crate::audience::{self, Audience, Gathering, Recipient};
use crate::campaigns::{Refused, Scope};
use crate::deploy::{Deployed, TRIES, deployed, derived_id, launch};
use crate::entropy::Entropy;
use crate::reached::{Runs, Unreached};
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
    let unserved = unserved(store, scope, &run, entropy).await?;
    let runs = Runs { store, scope, campaign: &run.campaign_id };
    for _ in 0..TRIES {
        let last = runs.last().await?;
        let mut unreached = Unreached::default();
        if last > run.ordinal {
            unreached = Unreached::of_audience(store, &unserved).await?;
            runs.take_named(&mut unreached, run.ordinal).await?;
        }
        let by_later = |later: &Text| Refused::Retried(run.id.to_string(), later.to_string());
        if let Some(later) = unreached.last().filter(|_| unreached.is_empty()) {
            return Err(by_later(later));
        }
        let audience = unreached.gather(store, scope, &unserved, entropy).await?;
        let next = next_run(&run, last + 1, &audience, store.now().await?);
        // Whoever redrives one of its jobs at the same moment changes the run as well: one of the two is refused.
        let commit = Commit::new().update(&run, version);
        let refused = match launch(store, commit, &next, &audience, by).await {
            Ok(()) => return made(store, &run, &audience).await,
            Err(refused) => refused,
        };
        if retry_of(store, &run).await?.is_some() {
            return made(store, &run, &audience).await;
        }
        match &refused {
            Refused::Store(Error::Conflict(Conflict::NotUnique { .. })) => {}
            Refused::Store(error) if error.kind() == Kind::Conflict => break,
            _ => return Err(refused),
        }
    }
    Err(Refused::AtWork(run.id.to_string()))
}

/// The run that tries another again, by whoever made it.
async fn made(store: &dyn Store, run: &CampaignRun, audience: &Audience) -> Result<Deployed, Refused> {
    let made = retry_of(store, run).await?.ok_or_else(|| Refused::NoRun(id_of_retry(run).to_string()))?;
    Ok(deployed(&made, made.audience_id != audience.id))
}

fn next_run(run: &CampaignRun, ordinal: u32, audience: &Audience, now: Timestamp) -> CampaignRun {
    CampaignRun {
        id: id_of_retry(run),
        ordinal,
        status: RunStatus::Queued.as_str().into(),
        control: Control::Active.as_str().into(),
        audience_id: audience.id.clone(),
        audience_digest: audience.digest.clone(),
        items: audience.items(),
        jobs: audience.numbers().end,
        scheduled_for: now,
        retry_of: Some(run.id.clone()),
        wake_at: now,
        created_at: now,
        ended_at: None,
        ..run.clone()
    }
}

/// A run of which nobody is left to reach has reached everybody.
fn nobody(refused: Refused) -> Refused {
    if refused == Refused::NobodyToReach { Refused::EverybodyReached } else { refused }
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
    gathering.finish().await.map_err(nobody)
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
