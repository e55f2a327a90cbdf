//! What people can ask of campaign runs.

use std::sync::Arc;

use onward_dispatch::{Act, Change, Control, JobAct, JobStatus, Reason, RunAct, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Commit, Error, Field as _, Key, Kind, Records as _, Scan, Store};
use serde_json::json;

use crate::audience::{self, Audience, Gathering, Recipient};
use crate::deploy::{self, Deployed, Deployment};
use crate::entropy::Entropy;
use crate::reached::{Runs, Unreached};
use crate::verdict::{self, Said, Settled, Verdict};
use crate::{audit, finish, lists, retry, rows};

/// Jobs of a campaign: they are made together.
pub(crate) const JOBS_MAX: usize = 99_000;

/// Characters of an id that are enough to look for it.
const BEGINNING_MIN: usize = 4;

/// Whose campaigns are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant.
    pub tenant: Text,
    /// The workspace.
    pub workspace: Text,
}

impl Scope {
    /// Whether something of these is meant.
    pub fn has(&self, tenant: &Text, workspace: &Text) -> bool {
        self.tenant == *tenant && self.workspace == *workspace
    }
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such campaign run.
    #[error("there is no campaign run {0}")]
    NoRun(String),
    /// Several campaign runs begin so.
    #[error("several campaign runs begin with {0}: give more of the id")]
    Ambiguous(String),
    /// The beginning of an id that could be that of many.
    #[error("{0} is too short: give the first four characters of the id, or more")]
    TooShort(String),
    /// There is no such item.
    #[error("there is no item {0} in the outbox")]
    NoItem(String),
    /// There is no such job.
    #[error("there is no job {0}")]
    NoJob(String),
    /// The item is not in doubt.
    #[error("{0} is not in doubt")]
    NotInDoubt(String),
    /// The job is not dead.
    #[error("job {0} is not dead, and does not wait: it is worked on, or done")]
    NotDead(String),
    /// Somebody works on the job.
    #[error("{0} is being worked on: ask again in a moment")]
    AtWork(String),
    /// A worker has the job, or had it and was not heard of again.
    #[error("job {0} is held until {1}: its worker may be calling the provider, or was killed; ask again then")]
    Held(String, Timestamp),
    /// There is no such audience.
    #[error("there is no audience {0}")]
    NoAudience(String),
    /// The audience was stored too long ago.
    #[error("the audience {0} was stored more than six days ago: store it again")]
    AudienceOld(String),
    /// A part of an audience is missing.
    #[error("the audience {0} has no part {1}, and has others after it")]
    PartMissing(String, usize),
    /// A part of an audience has nobody, or too many.
    #[error("a part of an audience has 1 to 1000 recipients, and not {0}")]
    PartSize(u32),
    /// Another part of an audience is there.
    #[error("the audience {0} has another part {1}")]
    PartTaken(String, u32),
    /// The campaign run is not over.
    #[error("the campaign run {0} is not over: cancel it, or settle what is in doubt")]
    NotOver(String),
    /// The campaign run is not over because only somebody can say what became of some items.
    #[error(
        "the campaign run {0} is not over: nobody knows what became of {1} (onward outbox in-doubt); say it, and try again"
    )]
    Undecided(String, u64),
    /// Another run has taken over from the campaign run.
    #[error("those whom the campaign run {0} did not reach are for a later run to reach: {1}")]
    Retried(String, String),
    /// The campaign run is over, or cancelled.
    #[error("the campaign run {0} is over")]
    Over(String),
    /// The campaign run is cancelled.
    #[error(
        "the campaign run {0} is cancelled: say of what is in doubt that it was sent or has failed; `onward campaign retry` then reaches those who were not reached"
    )]
    Cancelled(String),
    /// An audience without anybody.
    #[error("there is nobody to reach")]
    NobodyToReach,
    /// Everybody has what a run was to bring them.
    #[error("everybody was reached: there is nobody to try again for")]
    EverybodyReached,
    /// Earlier runs of the campaign have reached some of the audience, or are to.
    #[error("{reached} of {of} were reached by earlier runs of `{campaign}`, or are to be (the last is {last})")]
    Reached {
        /// The campaign.
        campaign: String,
        /// How many.
        reached: usize,
        /// Of how many.
        of: usize,
        /// The last of those runs.
        last: String,
    },
    /// More jobs than can be made together.
    #[error("a campaign has at most {JOBS_MAX} jobs, and not {0}: put more recipients into each")]
    TooManyJobs(usize),
    /// The key has deployed something else.
    #[error("the key has deployed another campaign, or the same for other people: {0}")]
    KeyTaken(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Access to the campaign runs of a scope.
#[derive(Clone)]
pub struct Campaigns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) scope: Scope,
}

/// Jobs under way that are counted, at most.
const PACED: usize = 1_000;

/// How a campaign run goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pace {
    /// Workers have so many of its jobs. The first is taken over then, unless its worker is heard of: a worker that was killed
    /// is not told apart from one that is at work.
    UnderWay {
        /// How many.
        jobs: u64,
        /// Until when.
        until: Timestamp,
    },
    /// Nothing is done until then, and why.
    Waits(Timestamp, Option<Text>),
}

impl Campaigns {
    /// The campaign runs of a scope.
    pub fn new(store: Arc<dyn Store>, scope: Scope) -> Self {
        Self { store, scope }
    }

    /// Whose they are.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A campaign run.
    pub async fn run(&self, id: &str) -> Result<CampaignRun, Refused> {
        Ok(self.stored(id).await?.0)
    }

    /// A campaign run by its id, or by the beginning of it if that is enough to tell it from others.
    pub async fn find(&self, beginning: &str) -> Result<CampaignRun, Refused> {
        match self.run(beginning).await {
            Err(Refused::NoRun(_)) if beginning.len() >= BEGINNING_MIN => {}
            Err(Refused::NoRun(_)) => return Err(Refused::TooShort(beginning.to_owned())),
            found => return found,
        }
        let mut scan = Scan::all::<CampaignRun>().until(&Text::from(format!("{beginning}~")));
        scan.after = Some(vec![Text::from(beginning).to_value()]);
        let is_ours = |run: &CampaignRun| self.scope.has(&run.tenant_id, &run.workspace_id);
        let mut found = lists::chosen(&*self.store, scan, is_ours, 2).await?;
        if found.len() > 1 {
            return Err(Refused::Ambiguous(beginning.to_owned()));
        }
        found.pop().ok_or_else(|| Refused::NoRun(beginning.to_owned()))
    }

    async fn stored(&self, id: &str) -> Result<(CampaignRun, u64), Refused> {
        let run: Option<(CampaignRun, u64)> = self.store.get(Key(vec![Text::from(id).to_value()])).await?;
        let is_ours = |(run, _): &(CampaignRun, u64)| self.scope.has(&run.tenant_id, &run.workspace_id);
        run.filter(is_ours).ok_or_else(|| Refused::NoRun(id.to_owned()))
    }

    /// How the items of a campaign run stand.
    pub async fn tally(&self, id: &str) -> Result<Tally, Refused> {
        let run = self.run(id).await?;
        Ok(finish::tally(&*self.store, &run.id).await?)
    }

    /// Says what became of an item in doubt: who, and why.
    pub async fn settle(&self, item: &str, verdict: &Verdict, by: &str, why: &str) -> Result<OutboxItem, Refused> {
        let settled = self.settle_all(&[item.to_owned()], verdict, by, why).await?;
        settled.into_iter().next().map_or_else(|| Err(Refused::NoItem(item.to_owned())), |(_, outcome)| outcome)
    }

    /// Says the same of many items in doubt. Those of one job are settled together, or not at all.
    pub async fn settle_all(
        &self,
        items: &[String],
        verdict: &Verdict,
        by: &str,
        why: &str,
    ) -> Result<Vec<Settled>, Refused> {
        verdict::settle(&*self.store, &self.scope, items, Said { verdict, by, why }).await
    }

    /// Begins nothing more until it is resumed. What is under way is settled.
    pub async fn pause(&self, id: &str, by: &str) -> Result<CampaignRun, Refused> {
        self.control(id, Control::Paused, by).await
    }

    /// Goes on.
    pub async fn resume(&self, id: &str, by: &str) -> Result<CampaignRun, Refused> {
        self.control(id, Control::Active, by).await
    }

    /// Begins nothing more, ever: whoever was not reached by then is skipped.
    pub async fn cancel(&self, id: &str, by: &str) -> Result<CampaignRun, Refused> {
        self.control(id, Control::Cancelled, by).await
    }

    async fn control(&self, id: &str, wanted: Control, by: &str) -> Result<CampaignRun, Refused> {
        loop {
            let (mut run, version) = self.stored(id).await?;
            let control = Control::parse(&run.control).unwrap_or(Control::Active);
            if rows::run_status(&run).is_over() {
                return Err(Refused::Over(id.to_owned()));
            }
            if control == wanted {
                return Ok(run);
            }
            let Some(next) = control.then(wanted) else { return Err(Refused::Cancelled(id.to_owned())) };
            let now = self.store.now().await?;
            run.control = next.as_str().into();
            run.wake_at = match next {
                Control::Active => run.scheduled_for,
                Control::Paused => Timestamp::MAX,
                Control::Cancelled => now,
            };
            let event = match next {
                Control::Active => "run.resumed",
                Control::Paused => "run.paused",
                Control::Cancelled => "run.cancelled",
            };
            let commit = Commit::new().update(&run, version);
            let commit = audit::entry(commit, &run, event, &json!({ "by": by }), now);
            match self.store.commit(commit).await {
                Ok(_) => return Ok(run),
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tries a campaign run again that is over: another run reaches those whom it did not.
    pub async fn retry(&self, id: &str, by: &str, entropy: &Entropy) -> Result<Deployed, Refused> {
        let run = self.stored(id).await?;
        retry::retry(&*self.store, &self.scope, run, by, entropy).await
    }

    /// The run that tries another again.
    pub async fn retried_by(&self, run: &CampaignRun) -> Result<Option<CampaignRun>, Refused> {
        Ok(retry::retry_of(&*self.store, run).await?)
    }

    /// What the key of a deployment has deployed, if anything.
    pub async fn deployed(&self, deployment: &Deployment, audience: &Audience) -> Result<Option<Deployed>, Refused> {
        deploy::before(&*self.store, &self.scope, deployment, audience).await
    }

    /// Deploys a campaign for an audience that is stored.
    pub async fn deploy(
        &self,
        deployment: &Deployment,
        audience: &Audience,
        entropy: &Entropy,
    ) -> Result<Deployed, Refused> {
        deploy::deploy(&*self.store, &self.scope, deployment, audience, entropy).await
    }

    /// Begins to store an audience, in parts of so many.
    pub fn gather(&self, part_items: u32, entropy: &Entropy) -> Gathering<'_> {
        Gathering::begin(&*self.store, self.scope.clone(), part_items, entropy)
    }

    /// Stores a part of an audience. Storing it again does nothing.
    pub async fn put_part(&self, audience: &str, number: u32, recipients: &[Recipient]) -> Result<(), Refused> {
        let id = audience::scoped(&self.scope, audience);
        audience::put(&*self.store, &self.scope, (&id, number), recipients).await.map(drop)
    }

    /// An audience that is stored.
    pub async fn audience(&self, id: &str) -> Result<Audience, Refused> {
        Audience::stored(&*self.store, &self.scope, id).await
    }

    /// What is done for a campaign run now, or until when nothing is.
    pub async fn pace(&self, run: &CampaignRun) -> Result<Option<Pace>, Refused> {
        if rows::run_status(run).is_over() {
            return Ok(None);
        }
        let jobs = |status: JobStatus| Scan::by::<Job>(Job::BY_TURN).equal(&run.id).equal(&Text::from(status.as_str()));
        let first = async |status: JobStatus| -> Result<Option<Job>, Refused> {
            let found: Vec<(Job, u64)> = self.store.list(jobs(status).limit(1)).await?;
            Ok(found.into_iter().next().map(|(job, _)| job))
        };
        if let Some(job) = first(JobStatus::Locked).await? {
            let jobs = self.store.count(jobs(JobStatus::Locked).limit(PACED)).await?.max(1);
            return Ok(Some(Pace::UnderWay { jobs, until: job.run_after }));
        }
        let now = self.store.now().await?;
        let is_later = |at: Timestamp| now < at && at < Timestamp::MAX;
        if Control::parse(&run.control) != Some(Control::Active) {
            return Ok(None);
        }
        if run.scheduled_for > now {
            return Ok(Some(Pace::Waits(run.scheduled_for, None)).filter(|_| is_later(run.scheduled_for)));
        }
        let waiting = [first(JobStatus::Queued).await?, first(JobStatus::Failed).await?];
        let next = waiting.into_iter().flatten().min_by_key(|job| job.run_after);
        Ok(next.filter(|job| is_later(job.run_after)).map(|job| Pace::Waits(job.run_after, job.error)))
    }

    /// Does not wait any longer with a job that waits.
    async fn hurry(&self, (mut job, version): (Job, u64), by: &str) -> Result<Job, Refused> {
        let now = self.store.now().await?;
        let waits = matches!(rows::job_status(&job), JobStatus::Queued | JobStatus::Failed) && job.run_after > now;
        if !waits {
            return Err(Refused::NotDead(job.id.to_string()));
        }
        let run = self.run(&job.run_id).await?;
        job.run_after = now;
        let detail = json!({ "job": &*job.id, "items": 0, "by": by });
        let commit = audit::entry(Commit::new().update(&job, version), &run, "job.redriven", &detail, now);
        self.change(commit, job).await
    }

    /// Stores what becomes of a job, unless somebody else has changed it meanwhile.
    async fn change(&self, commit: Commit, job: Job) -> Result<Job, Refused> {
        match self.store.commit(commit).await {
            Err(error) if error.kind() == Kind::Conflict => Err(Refused::AtWork(job.id.to_string())),
            stored => stored.map(|_| job).map_err(Refused::from),
        }
    }

    /// Tries a dead job again: those of its items that nobody tried any more. One that waits is tried now.
    pub async fn redrive(&self, job: &str, by: &str) -> Result<Job, Refused> {
        let found: Option<(Job, u64)> = self.store.get(Key(vec![Text::from(job).to_value()])).await?;
        let is_ours = |(job, _): &(Job, u64)| self.scope.has(&job.tenant_id, &job.workspace_id);
        let Some((mut job, version)) = found.filter(is_ours) else { return Err(Refused::NoJob(job.to_owned())) };
        let Some(status) = rows::job_status(&job).after(JobAct::Redrive) else {
            return self.hurry((job, version), by).await;
        };
        let (mut run, run_version) = self.stored(&job.run_id).await?;
        if Control::parse(&run.control) == Some(Control::Cancelled) {
            return Err(Refused::Cancelled(run.id.to_string()));
        }
        // Whoever tries the run again at the same moment changes it as well: one of the two is refused.
        if let Some(next) = retry::retry_of(&*self.store, &run).await? {
            return Err(Refused::Retried(run.id.to_string(), next.id.to_string()));
        }
        let now = self.store.now().await?;
        let mut commit = Commit::new();
        let mut reopened = 0;
        let items = rows::items(&*self.store, &job.id).await?;
        let is_exhausted = |row: &OutboxItem| row.reason.as_deref() == Some(Reason::Exhausted.as_str());
        let exhausted = items.iter().map(|(row, _)| row).filter(|row| is_exhausted(row));
        let mut unreached = Unreached::of(exhausted.map(|row| row.recipient_id.clone()));
        let runs = Runs { store: &*self.store, scope: &self.scope, campaign: &run.campaign_id };
        runs.take_named(&mut unreached, run.ordinal).await?;
        for (row, version) in items {
            let is_open = is_exhausted(&row) && unreached.has(&row.recipient_id);
            if let Some(to) = rows::standing(&row).after(Act::Redrive).filter(|_| is_open) {
                let change = Change { to, calls: 0, reason: None, error: None, message_id: None };
                commit = commit.update(&rows::changed(row, &change, rows::channel(&run), now), version);
                reopened += 1;
            }
        }
        if let Some(later) = unreached.last().filter(|_| reopened == 0) {
            return Err(Refused::Retried(run.id.to_string(), later.to_string()));
        }
        job.failed -= reopened.min(job.failed);
        (job.attempts, job.run_after, job.status) = (0, now, status.as_str().into());
        commit = commit.update(&job, version);
        if let Some(status) = rows::run_status(&run).after(RunAct::Reopen) {
            (run.status, run.ended_at) = (status.as_str().into(), None);
        }
        if Control::parse(&run.control) != Some(Control::Paused) {
            run.wake_at = now;
        }
        // Whoever is about to end the run because all of its jobs are over finds that it has changed.
        commit = commit.update(&run, run_version);
        let detail = json!({ "job": &*job.id, "items": reopened, "by": by });
        commit = audit::entry(commit, &run, "job.redriven", &detail, now);
        self.change(commit, job).await
    }
}
