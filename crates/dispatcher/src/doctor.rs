//! Whether any campaign run is stuck, or says what cannot be: every job that is not over has a worker, a time, or somebody who
//! has to say what became of its items; and what rows say together is what they say one by one.
//!
//! Others may work on the store meanwhile. Whatever is done for a job changes its row, so one that is the same before and after
//! its items are read was seen as it is; what has changed is read again.

use onward_dispatch::{Control, JobStatus, Standing, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{AudiencePart, CampaignRun, Job, OutboxItem};
use onward_store::{Error, Field as _, Key, Records as _, Scan, Store};

use crate::campaigns::Scope;
use crate::finish::is_cut_short;
use crate::rows;

/// Work that is due for so long is late.
const LATE_MS: u64 = 60_000;

/// How often something is read again. What changes every time is not stuck.
const LOOKS_MAX: u32 = 6;

/// What is the matter with a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ailment {
    /// Jobs of it, or those whom they are to reach, are not there.
    Missing,
    /// Rows say different things of the same.
    Differs,
    /// Something is open, and nothing brings it to its end.
    Forgotten,
    /// Only somebody can say what became of some items.
    InDoubt,
    /// It is due, and nobody does anything.
    Late,
}

/// Something that is the matter with a campaign run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The campaign run.
    pub run: Text,
    /// What.
    pub ailment: Ailment,
    /// The particulars, for people.
    pub message: String,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// Campaign runs.
    pub runs: u64,
    /// Items of them that have rows.
    pub items: u64,
}

/// What is the matter, without saying with which run.
type Wrong = (Ailment, String);

/// Looks at every campaign run of a store, page by page; at those of a scope alone, if there is one.
pub async fn examine(
    store: &dyn Store,
    scope: Option<&Scope>,
    report: &mut (dyn FnMut(Flaw) + Send),
) -> Result<Looked, Error> {
    let mut looked = Looked::default();
    let mut scan = match scope {
        None => Scan::all::<CampaignRun>(),
        Some(Scope { tenant, workspace }) => {
            Scan::by::<CampaignRun>(CampaignRun::BY_AGE).equal(tenant).equal(workspace)
        }
    };
    loop {
        let page: Vec<(CampaignRun, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { return Ok(looked) };
        scan = scan.after(last);
        for (run, version) in page {
            let id = run.id.clone();
            for (ailment, message) in look(store, run, version, &mut looked).await? {
                report(Flaw { run: id.clone(), ailment, message });
            }
            looked.runs += 1;
        }
    }
}

/// What is the matter with a run, and stays so while the run does not change.
async fn look(
    store: &dyn Store,
    mut run: CampaignRun,
    mut version: u64,
    looked: &mut Looked,
) -> Result<Vec<Wrong>, Error> {
    for _ in 0..LOOKS_MAX {
        let (wrong, items) = of_run(store, &run).await?;
        looked.items += items;
        let now: Option<(CampaignRun, u64)> = store.get(Key(vec![run.id.to_value()])).await?;
        match now {
            Some((_, current)) if current == version => return Ok(wrong),
            Some((changed, current)) => (run, version) = (changed, current),
            None => return Ok(Vec::new()),
        }
        looked.items -= items;
    }
    Ok(Vec::new())
}

/// What is the matter with a run as it is, and how many of its items were looked at.
async fn of_run(store: &dyn Store, run: &CampaignRun) -> Result<(Vec<Wrong>, u64), Error> {
    let (mut wrong, mut whole, mut read) = (Vec::new(), Whole::default(), 0);
    let now = store.now().await?;
    let mut scan = Scan::all::<Job>().until(&Text::from(format!("{}.~", run.id)));
    scan.after = Some(vec![Text::from(format!("{}.", run.id)).to_value()]);
    loop {
        let page: Vec<(Job, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { break };
        scan = scan.after(last);
        for job in page {
            let (job, items) = still(store, job).await?;
            if let Some(items) = items {
                read += items.len() as u64;
                wrong.extend(of_job(&job, &items, now));
                wrong.extend(audience(store, run, &job).await?);
            }
            whole.add(&job, now);
        }
    }
    let is_cut_short = is_cut_short(store, run, &whole.tally).await?;
    wrong.extend(whole.judge(run, is_cut_short, now));
    Ok((wrong, read))
}

/// A job and its items as they were at one moment; without items if it changes all the time.
async fn still(store: &dyn Store, (mut job, mut version): (Job, u64)) -> Result<(Job, Option<Vec<OutboxItem>>), Error> {
    for _ in 0..LOOKS_MAX {
        let items = rows::items(store, &job.id).await?;
        let now: Option<(Job, u64)> = store.get(Key(vec![job.id.to_value()])).await?;
        match now {
            Some((_, current)) if current == version => {
                return Ok((job, Some(items.into_iter().map(|(item, _)| item).collect())));
            }
            Some((changed, current)) => (job, version) = (changed, current),
            None => break,
        }
    }
    Ok((job, None))
}

/// What is the matter with a job that has these items.
fn of_job(job: &Job, items: &[OutboxItem], now: Timestamp) -> Vec<Wrong> {
    let (id, status, said) = (&job.id, rows::job_status(job), rows::tally(job));
    let found = Tally::of(items.iter().map(rows::standing));
    let held = items.iter().filter(|item| rows::standing(item) == Standing::Held).count();
    let mut wrong = Vec::new();
    // Whoever is named twice has one row, and is counted as skipped besides.
    let counts = |tally: &Tally| (tally.served, tally.failed, tally.in_doubt);
    if counts(&said) != counts(&found) || said.skipped < found.skipped || found.items > said.items {
        wrong.push((Ailment::Differs, format!("job {id} counts {said:?}, and its items are {found:?}")));
    }
    if status.is_over() && !said.is_settled() {
        wrong.push((Ailment::Forgotten, format!("job {id} is {status}, and {} of its items are open", open(&said))));
    }
    if status != JobStatus::Locked && held > 0 {
        wrong.push((Ailment::Forgotten, format!("job {id} is {status}, and {held} of its items are held by nobody")));
    }
    let waits = matches!(status, JobStatus::Queued | JobStatus::Failed);
    if waits && job.run_after == Timestamp::MAX && said.in_doubt == 0 {
        wrong.push((Ailment::Forgotten, format!("job {id} waits for a verdict, and nothing of it is in doubt")));
    }
    if let Some(until) = job.locked_until.filter(|until| until.plus_ms(LATE_MS) <= now) {
        wrong.push((Ailment::Late, format!("job {id} was held until {until}, and nobody has taken it over since")));
    }
    wrong
}

const fn open(tally: &Tally) -> u64 {
    tally.open() + tally.in_doubt
}

/// Whether those are there whom a job is still to reach.
async fn audience(store: &dyn Store, run: &CampaignRun, job: &Job) -> Result<Option<Wrong>, Error> {
    if rows::job_status(job).is_over() {
        return Ok(None);
    }
    let key = Key(vec![run.audience_id.to_value(), job.number.to_value()]);
    let part: Option<(AudiencePart, u64)> = store.get(key).await?;
    let is_there = part.is_some_and(|(part, _)| part.items == job.items);
    Ok((!is_there).then(|| (Ailment::Missing, format!("those whom job {} is to reach are not there", job.id))))
}

/// What the jobs of a run come to.
#[derive(Default)]
struct Whole {
    jobs: u32,
    over: u32,
    tally: Tally,
    /// Items that wait for somebody.
    undecided: u64,
    /// Whether somebody works on it.
    is_under_way: bool,
    /// Since when the first job is due.
    due: Option<Timestamp>,
    /// Whether somebody has still to be reached, or left out.
    has_open: bool,
    /// When the last job was over.
    ended: Option<Timestamp>,
}

impl Whole {
    fn add(&mut self, job: &Job, now: Timestamp) {
        let status = rows::job_status(job);
        self.jobs += 1;
        self.over += u32::from(status.is_over());
        self.tally += rows::tally(job);
        self.is_under_way |= job.locked_until.is_some_and(|until| now < until);
        match status {
            JobStatus::Locked => {}
            JobStatus::Completed | JobStatus::Dead => self.ended = self.ended.max(Some(job.run_after)),
            JobStatus::Queued | JobStatus::Failed if job.run_after == Timestamp::MAX => {
                self.undecided += u64::from(job.in_doubt);
            }
            JobStatus::Queued | JobStatus::Failed => {
                self.due = Some(self.due.map_or(job.run_after, |due| due.min(job.run_after)));
                self.has_open |= rows::tally(job).open() > 0;
            }
        }
    }

    fn judge(&self, run: &CampaignRun, is_cut_short: bool, now: Timestamp) -> Vec<Wrong> {
        let (status, control) = (rows::run_status(run), Control::parse(&run.control));
        let Self { jobs, over, tally, undecided, .. } = self;
        let mut wrong = Vec::new();
        if *jobs != run.jobs {
            wrong
                .push((Ailment::Missing, format!("it has {jobs} jobs that can be read, and should have {}", run.jobs)));
        }
        if status.is_over() && over < jobs {
            wrong.push((Ailment::Differs, format!("it is {status}, and {} of its jobs are not over", jobs - over)));
        }
        let came_to = tally.outcome(is_cut_short);
        if status.is_over() && over == jobs && status != came_to {
            wrong.push((Ailment::Differs, format!("it is {status}, and its items say {came_to}")));
        }
        if !status.is_over() && control != Some(Control::Paused) && run.wake_at == Timestamp::MAX {
            wrong.push((Ailment::Forgotten, "it is not over, and nobody ever looks at it".to_owned()));
        }
        if *undecided > 0 {
            let words = "items are in doubt, and somebody has to say what became of them: onward outbox in-doubt";
            wrong.push((Ailment::InDoubt, format!("{undecided} {words}")));
        }
        let is_wanted = !status.is_over() && control != Some(Control::Paused) && !self.is_under_way;
        let due = match self.due {
            // One that is cancelled waits with nobody.
            Some(_) if control == Some(Control::Cancelled) && self.has_open => Some(run.wake_at),
            Some(due) => Some(due.max(run.wake_at)),
            // All that is left to do is to say that it is over.
            None => self.ended.filter(|_| over == jobs),
        };
        if let Some(due) = due.filter(|due| is_wanted && due.plus_ms(LATE_MS) <= now) {
            let words = "and nobody works on it: is there a server, and does it have the provider?";
            wrong.push((Ailment::Late, format!("it is due since {due}, {words}")));
        }
        wrong
    }
}
