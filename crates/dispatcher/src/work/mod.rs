//! Work on a job: what an [`Attempt`] says, done step by step, by whoever holds the lease of the job.

mod admit;
mod call;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onward_dispatch::{Attempt, Change, Conclusion, Found, JobAct, Order, Reason, RunAct, Slot, Standing, Step, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem, Suppression};
use onward_store::{Commit, Conflict, Error, Field as _, Key, Kind, Outcome, Record as _, Records as _, Scan, Store};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use crate::audience::{self, Recipient};
use crate::audit;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::measure;
use crate::outlet::{Admission, Outlet};
use crate::reserve::{self, Durable};
use crate::rows::{self, Origin};

/// How long to wait before the store is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// A lease is renewed when this part of it has gone by.
const RENEWED: u32 = 3;

/// The audit trail tells of jobs that wait for at least so long until somebody may be reached.
const WORTH_TELLING_MS: u64 = 60_000;

/// How work on a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Concluded(Conclusion),
    /// Somebody else has the job by now, or may have it.
    Lost,
}

/// What a worker needs.
pub(crate) struct Desk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) lease: Duration,
    pub(crate) worker: Text,
    pub(crate) entropy: Entropy,
}

/// Work on one job.
pub(crate) struct Work<'a> {
    desk: &'a Desk,
    run: CampaignRun,
    run_version: u64,
    outlet: Arc<Outlet>,
    job: Job,
    version: u64,
    token: Text,
    /// Commits that were tried; each leaves a mark of its own, so that none is taken for another.
    commits: u32,
    /// Whether the job is this worker's, as far as it knows.
    is_held: bool,
    until: Instant,
    recipients: Vec<Recipient>,
    /// Positions of those who want nothing more.
    suppressed: Vec<usize>,
    rows: Vec<Option<(OutboxItem, u64)>>,
    provider: Text,
    scheduled_for: String,
    durable: Option<Durable>,
    /// Room at the provider for what is about to be reserved.
    room: Option<OwnedSemaphorePermit>,
    /// What the provider has said of items in doubt, for the audit trail.
    learnt: Map<String, Value>,
}

/// What a step makes of the job and its items.
struct Written {
    job: Job,
    rows: BTreeMap<usize, OutboxItem>,
    commit: Commit,
    /// Where in the commit rows are inserted, and of which items.
    inserted: Vec<(usize, usize)>,
}

impl<'a> Work<'a> {
    /// Reads what there is to know of a job.
    pub(crate) async fn prepare(
        desk: &'a Desk,
        (run, run_version): (CampaignRun, u64),
        outlet: Arc<Outlet>,
        (job, version): (Job, u64),
    ) -> Result<Self, Error> {
        let recipients = audience::read(&*desk.store, &run.audience_id, job.number).await?;
        let mut rows: Vec<Option<(OutboxItem, u64)>> = vec![None; recipients.len()];
        // Nobody has reserved anything for a job that nobody has locked.
        if job.lock_epoch > 0 {
            for (row, version) in rows::items(&*desk.store, &job.id).await? {
                let Some(place) = rows::position(&row.id).and_then(|position| rows.get_mut(position)) else {
                    return Err(Error::corrupt(format!("item {} is not of its job", row.id)));
                };
                *place = Some((row, version));
            }
        }
        let suppressed = suppressed(&*desk.store, &run, &recipients).await?;
        let provider = Text::from(outlet.provider.name());
        let scheduled_for = run.scheduled_for.to_string();
        Ok(Self {
            token: desk.entropy.id(),
            commits: 0,
            is_held: false,
            until: Instant::now(),
            durable: None,
            room: None,
            learnt: Map::new(),
            desk,
            run,
            run_version,
            outlet,
            job,
            version,
            recipients,
            suppressed,
            rows,
            provider,
            scheduled_for,
        })
    }

    /// Makes the job this worker's, and does nothing more. Tells whether it is.
    pub(crate) async fn lock(mut self) -> Result<bool, Error> {
        let (tally, attempts) = (rows::tally(&self.job), self.job.attempts + 1);
        Ok(self.store(BTreeMap::new(), tally, attempts, None).await?.is_some())
    }

    /// Does all there is to do for now.
    pub(crate) async fn perform(mut self, order: impl Fn() -> Order) -> Result<End, Error> {
        let now = self.desk.clock.now();
        let slot = |row: &Option<(OutboxItem, u64)>| row.as_ref().map_or(Slot::NEW, |(row, _)| rows::slot(row, now));
        let slots = self.rows.iter().map(slot).collect();
        let mut attempt = Attempt::new(slots, self.job.attempts + 1, self.outlet.terms, order());
        for position in self.repeated() {
            attempt.pass_over(position);
        }
        for &position in &self.suppressed {
            attempt.exclude(position, Reason::Suppressed);
        }
        let mut end = End::Lost;
        loop {
            attempt.order(order());
            match attempt.next(self.desk.entropy.number()) {
                Step::Store { changes, tally, attempts, conclusion } => {
                    let Some(taken) = self.store(changes, tally, attempts, conclusion).await? else {
                        return Ok(End::Lost);
                    };
                    attempt.stored(&taken);
                    if let Some(conclusion) = conclusion {
                        end = End::Concluded(conclusion);
                    }
                }
                Step::Admit(positions, at_most) => match self.admit(&positions, at_most, &order).await? {
                    Admission::Some(admitted) => attempt.admitted(&admitted),
                    Admission::Nobody(wait) => attempt.put_off(millis(wait)),
                },
                Step::Call(positions) => match self.call(&positions).await? {
                    Some(answers) => attempt.answered(answers),
                    None => return Ok(End::Lost),
                },
                Step::Look(positions) => {
                    let found = self.look(&positions).await?;
                    self.learnt = told(&self.job.id, &found);
                    attempt.found(found);
                }
                Step::Over => return Ok(end),
            }
        }
    }

    /// Positions of those who come twice in the job: the first stands for the others.
    fn repeated(&self) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        (0..self.recipients.len()).filter(|position| !seen.insert(&self.recipients[*position].id)).collect()
    }

    /// Makes a step durable. Returns which of the items that it reserves another row stands for; nothing if the job is not this
    /// worker's any more.
    async fn store(
        &mut self,
        changes: BTreeMap<usize, Change>,
        tally: Tally,
        attempts: u32,
        conclusion: Option<Conclusion>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.commits += 1;
        // The lease is counted from the first time that it may have been stored.
        let (asked, mut is_unheard, mut are_new) = (Instant::now(), false, true);
        loop {
            let written = self.write(&changes, &tally, attempts, conclusion, are_new);
            let error = match reserve::store(&*self.desk.store, written.commit.clone()).await {
                Ok((receipt, durable)) => {
                    let is_kept = |place: usize| matches!(receipt.changes.get(place), Some(Outcome::Kept(_)));
                    let taken = written.inserted.iter().filter(|(place, _)| is_kept(*place)).map(|(_, it)| *it);
                    let taken: Vec<usize> = taken.collect();
                    self.durable = Some(durable);
                    self.take(written, &taken, asked);
                    measure::changes(changes.values());
                    return Ok(Some(taken));
                }
                Err(error) => error,
            };
            match error.kind() {
                Kind::Conflict if is_about(&error, CampaignRun::TABLE.name) => self.read_run().await?,
                // Other items stand for some of these.
                Kind::Conflict if are_new && is_clash(&error) => are_new = false,
                Kind::Conflict if is_unheard => return self.confirm(written, asked).await,
                Kind::Conflict => return Ok(None),
                Kind::Retry | Kind::Unknown => {
                    is_unheard |= error.kind() == Kind::Unknown;
                    tracing::warn!(job = %self.job.id, %error, "a step of a job could not be stored; it is stored again");
                    if self.is_held && Instant::now() >= self.until {
                        return Ok(None);
                    }
                    sleep(AGAIN).await;
                }
                Kind::Invalid | Kind::Corrupt | Kind::Fatal => return Err(error),
            }
        }
    }

    /// What a step makes of the job and its items. Most items are new; where some were not, those are kept.
    fn write(
        &self,
        changes: &BTreeMap<usize, Change>,
        tally: &Tally,
        attempts: u32,
        conclusion: Option<Conclusion>,
        are_new: bool,
    ) -> Written {
        let now = self.desk.clock.now();
        let mut job = self.job.clone();
        job.attempts = attempts;
        if !self.is_held {
            job.lock_epoch += 1;
        }
        rows::count(&mut job, tally, now);
        self.conclude(&mut job, conclusion, now);
        if let Some(error) = changes.values().rev().find_map(|change| change.error.clone()) {
            job.error = Some(error);
        }
        // What went wrong on the way is over; what went wrong with items stands there.
        if conclusion == Some(Conclusion::Completed) {
            job.error = None;
        }
        let mut commit = Commit::new().amend(&self.job, &job, self.version);
        if let Some(running) = rows::run_status(&self.run).after(RunAct::Begin) {
            let run = CampaignRun { status: running.as_str().into(), ..self.run.clone() };
            commit = commit.update(&run, self.run_version);
            commit = audit::entry(commit, &run, "run.began", &json!({ "by": &*self.desk.worker }), now);
        }
        let origin = self.origin();
        let (mut written, mut inserted) = (BTreeMap::new(), Vec::new());
        for (&position, change) in changes {
            let stored = self.rows[position].as_ref();
            let row =
                stored.map_or_else(|| origin.item(position, &self.recipients[position], now), |(row, _)| row.clone());
            let row = rows::changed(row, change, rows::channel(&self.run), now);
            commit = match stored {
                Some((before, version)) => commit.amend(before, &row, *version),
                None => {
                    inserted.push((commit.changes.len(), position));
                    if are_new { commit.insert(&row) } else { commit.insert_or_keep(&row) }
                }
            };
            written.insert(position, row);
        }
        for (event, detail) in self.events(&job, changes, conclusion) {
            commit = audit::entry(commit, &self.run, event, &detail, now);
        }
        Written { job, rows: written, commit, inserted }
    }

    fn origin(&self) -> Origin<'_> {
        let Self { run, job, provider, scheduled_for, .. } = self;
        Origin { run, job, provider, scheduled_for }
    }

    /// Where the job stands after a step: with this worker, or where the end of the attempt leads.
    fn conclude(&self, job: &mut Job, conclusion: Option<Conclusion>, now: Timestamp) {
        let (act, run_after) = match conclusion {
            None => {
                let until = now.plus_ms(millis(self.desk.lease));
                (job.lock_token, job.locked_until) = (Some(self.mark()), Some(until));
                (None, until)
            }
            Some(Conclusion::Completed) => (Some(JobAct::Complete), now),
            Some(Conclusion::Dead) => (Some(JobAct::Bury), now),
            Some(Conclusion::Retry(wait)) => (Some(JobAct::Fail), now.plus_ms(wait)),
            Some(Conclusion::Look(wait) | Conclusion::PutOff(wait)) => (Some(JobAct::Release), now.plus_ms(wait)),
            Some(Conclusion::Wait) => (Some(JobAct::Release), Timestamp::MAX),
            Some(Conclusion::Released) => (Some(JobAct::Release), now),
        };
        let mut status = rows::job_status(job);
        // Whoever takes over from another releases it for them first.
        if !self.is_held {
            let free = status.after(JobAct::Release).unwrap_or(status);
            status = rows::after(free, JobAct::Lock);
        }
        if let Some(act) = act {
            status = rows::after(status, act);
            (job.lock_token, job.locked_until) = (None, None);
        }
        job.status = status.as_str().into();
        job.run_after = run_after;
    }

    /// What the commit that is being made leaves in the row of the job.
    fn mark(&self) -> Text {
        format!("{}.{}", self.token, self.commits).into()
    }

    /// What the audit trail says of a step.
    fn events(
        &self,
        job: &Job,
        changes: &BTreeMap<usize, Change>,
        conclusion: Option<Conclusion>,
    ) -> Vec<(&'static str, Value)> {
        let mut events = Vec::new();
        let about = |detail: Value| {
            let mut about = json!({ "job": &*job.id, "worker": &*self.desk.worker, "epoch": job.lock_epoch });
            if let (Some(about), Value::Object(detail)) = (about.as_object_mut(), detail) {
                about.extend(detail);
            }
            about
        };
        if !self.is_held && rows::job_status(&self.job).after(JobAct::Release).is_some() {
            events.push(("job.recovered", about(json!({ "fromEpoch": self.job.lock_epoch }))));
        }
        let doubts: Vec<Text> = changes
            .iter()
            .filter(|(_, change)| change.to == Standing::InDoubt)
            .map(|(position, _)| rows::item_id(&job.id, *position))
            .collect();
        if !doubts.is_empty() {
            let doubts: Vec<&str> = doubts.iter().map(|item| &**item).collect();
            events.push(("items.in_doubt", about(json!({ "items": doubts }))));
        }
        if !self.learnt.is_empty() {
            events.push(("items.looked_up", about(json!({ "found": self.learnt }))));
        }
        let event = match conclusion {
            None => return events,
            // Whoever asked, and heard nothing new, need not be told of.
            Some(Conclusion::Look(_) | Conclusion::Wait) if !self.is_held && events.is_empty() => return events,
            Some(Conclusion::Completed) => "job.completed",
            Some(Conclusion::Dead) => "job.dead",
            Some(Conclusion::Retry(_)) => "job.failed",
            Some(Conclusion::Look(_) | Conclusion::Wait) => "job.in_doubt",
            Some(Conclusion::Released) => "job.released",
            Some(Conclusion::PutOff(wait)) if wait >= WORTH_TELLING_MS => "job.put_off",
            Some(Conclusion::PutOff(_)) => return events,
        };
        let waits = matches!(conclusion, Some(Conclusion::PutOff(_) | Conclusion::Retry(_) | Conclusion::Look(_)));
        let until = waits.then_some(job.run_after);
        let counts = json!({
            "until": until.map(|until| until.to_string()),
            "served": job.served, "failed": job.failed, "skipped": job.skipped, "inDoubt": job.in_doubt,
            "error": job.error.as_deref(),
        });
        events.push((event, about(counts)));
        events
    }

    /// A step is durable: what it made is what there is.
    fn take(&mut self, written: Written, taken: &[usize], asked: Instant) {
        for (position, row) in written.rows {
            if !taken.contains(&position) {
                let version = self.rows[position].as_ref().map_or(1, |(_, version)| version + 1);
                self.rows[position] = Some((row, version));
            }
        }
        (self.job, self.version) = (written.job, self.version + 1);
        (self.is_held, self.learnt) = (true, Map::new());
        if let Some(running) = rows::run_status(&self.run).after(RunAct::Begin) {
            self.run.status = running.as_str().into();
            self.run_version += 1;
        }
        // The store counts from later.
        self.until = asked + self.desk.lease;
    }

    /// A step was refused after one like it was not heard of: that one may be the reason.
    async fn confirm(&mut self, written: Written, asked: Instant) -> Result<Option<Vec<usize>>, Error> {
        let Some(durable) = reserve::confirm(&*self.desk.store, &written.job).await? else {
            return Ok(None);
        };
        let stored = rows::items(&*self.desk.store, &self.job.id).await?;
        let found: Vec<Text> = stored.into_iter().map(|(row, _)| row.id).collect();
        let is_taken = |(_, position): &&(usize, usize)| !found.contains(&rows::item_id(&self.job.id, *position));
        let taken: Vec<usize> = written.inserted.iter().filter(is_taken).map(|(_, position)| *position).collect();
        self.durable = Some(durable);
        self.take(written, &taken, asked);
        Ok(Some(taken))
    }

    async fn read_run(&mut self) -> Result<(), Error> {
        let run: Option<(CampaignRun, u64)> = self.desk.store.get(Key(vec![self.run.id.to_value()])).await?;
        (self.run, self.run_version) = run.ok_or_else(|| Error::corrupt("a job without a campaign run"))?;
        Ok(())
    }
}

/// What a provider has said of items of a job; nothing of those of which it could not tell.
fn told(job: &str, found: &[(usize, Found)]) -> Map<String, Value> {
    let word = |found: &Found| match found {
        Found::Accepted(_) => Some("taken"),
        Found::Refused(_) => Some("refused"),
        Found::Nothing => Some("unknown to it"),
        Found::Unsure => None,
    };
    let said = found.iter().filter_map(|(position, found)| Some((*position, word(found)?)));
    said.map(|(position, word)| (rows::item_id(job, position).to_string(), word.into())).collect()
}

/// The positions of those who want nothing more by this channel.
async fn suppressed(store: &dyn Store, run: &CampaignRun, recipients: &[Recipient]) -> Result<Vec<usize>, Error> {
    let (tenant, workspace, channel) = (&run.tenant_id, &run.workspace_id, &run.channel);
    let any = Scan::all::<Suppression>().equal(tenant).equal(workspace).equal(channel).limit(1);
    if store.rows(any).await?.is_empty() {
        return Ok(Vec::new());
    }
    let of = async |position: usize| -> Result<Option<usize>, Error> {
        let address = Text::from(recipients[position].address.to_lowercase());
        let key = Key(vec![tenant.to_value(), workspace.to_value(), channel.to_value(), address.to_value()]);
        Ok(store.row(Suppression::TABLE, key).await?.map(|_| position))
    };
    let found = join_all((0..recipients.len()).map(of)).await;
    found.into_iter().filter_map(Result::transpose).collect()
}

/// Whether an item cannot stand beside another.
fn is_clash(error: &Error) -> bool {
    let Error::Conflict(Conflict::RowExists { table, .. } | Conflict::NotUnique { table, .. }) = error else {
        return false;
    };
    *table == OutboxItem::TABLE.name
}

/// Whether a row of this table is what a commit did not find as it should be.
fn is_about(error: &Error, name: &str) -> bool {
    matches!(error, Error::Conflict(Conflict::RowVersion { table, .. }) if *table == name)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
