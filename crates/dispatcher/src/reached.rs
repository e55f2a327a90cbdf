//! Whom the runs of a campaign have reached. Deploying asks before it makes another run, so that nobody is reached twice who was
//! not to be; an audience of a million is sixteen bytes for each of them here, and is read part by part.

use std::collections::HashSet;

use onward_dispatch::{Control, Reason, Standing, digest};
use onward_journal::Text;
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Commit, Error, Field as _, Key, Records as _, Scan, Store};

use crate::audience::{self, Audience, Gathering};
use crate::campaigns::{Refused, Scope};
use crate::entropy::Entropy;
use crate::rows;

/// Runs that are read together: each has a document of up to some megabytes.
const RUNS: usize = 10;

/// What is to happen with those whom earlier runs of the same campaign have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reached {
    /// Nothing is deployed if there is one.
    #[default]
    Refuse,
    /// The others are reached.
    LeaveOut,
    /// They are reached again.
    Again,
}

/// The runs of a campaign, in their order.
pub(crate) struct Runs<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) scope: &'a Scope,
    pub(crate) campaign: &'a Text,
}

impl Runs<'_> {
    fn scan(&self) -> Scan {
        let Scope { tenant, workspace } = self.scope;
        let scan = Scan::by::<CampaignRun>(CampaignRun::BY_ORDINAL).equal(tenant).equal(workspace);
        scan.equal(self.campaign).limit(RUNS).reversed()
    }

    /// The next runs of a scan, if there are any.
    async fn page(&self, scan: &mut Scan) -> Result<Option<Vec<(CampaignRun, u64)>>, Error> {
        let page: Vec<(CampaignRun, u64)> = self.store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        *scan = scan.clone().after(last);
        Ok(Some(page))
    }

    /// The ordinal of the last one; 0 if there is none.
    pub(crate) async fn last(&self) -> Result<u32, Error> {
        let found: Vec<(CampaignRun, u64)> = self.store.list(self.scan().limit(1)).await?;
        Ok(found.first().map_or(0, |(run, _)| run.ordinal))
    }

    /// Takes those out whom runs have reached, or are to: the runs until an ordinal, the last first.
    pub(crate) async fn take_reached(&self, from: &mut Unreached, until: u32) -> Result<(), Error> {
        let mut scan = self.scan().until(&until);
        while let Some(page) = self.page(&mut scan).await? {
            for (run, version) in &page {
                if from.ids.is_empty() {
                    return Ok(());
                }
                from.take_reached_by(self.store, run, *version).await?;
            }
        }
        Ok(())
    }

    /// Takes those out for whom a run was made after this ordinal, whatever became of them there: the last run that was made for
    /// somebody is the one by which they can be tried again, so that no two are.
    pub(crate) async fn take_named(&self, from: &mut Unreached, after: u32) -> Result<(), Error> {
        let mut scan = self.scan();
        while let Some(page) = self.page(&mut scan).await? {
            for (run, _) in &page {
                if run.ordinal <= after || from.ids.is_empty() {
                    return Ok(());
                }
                let before = from.ids.len();
                for number in 0..run.jobs {
                    from.take_part(self.store, run, number).await?;
                }
                from.note(before, run);
            }
        }
        Ok(())
    }
}

/// Somebody, in little memory.
type Id = [u8; 16];

fn id(recipient: &str) -> Id {
    let mut id = [0; 16];
    id.copy_from_slice(&digest(&[recipient])[..16]);
    id
}

/// Those whom no run has reached that was looked at.
#[derive(Debug, Default)]
pub(crate) struct Unreached {
    ids: HashSet<Id>,
    /// How many there were before anything was looked at.
    of: usize,
    /// The last run that has reached one of them, or is to.
    last: Option<Text>,
    /// Runs that are over, and in which one of them failed whom a job that is redriven would try again.
    reopenable: Vec<(CampaignRun, u64)>,
}

impl Unreached {
    /// All of an audience.
    pub(crate) async fn of_audience(store: &dyn Store, audience: &Audience) -> Result<Self, Error> {
        let mut ids = HashSet::new();
        for number in audience.numbers() {
            ids.extend(audience::read(store, &audience.id, number).await?.iter().map(|it| id(&it.id)));
        }
        Ok(Self { of: ids.len(), ids, ..Self::default() })
    }

    /// These.
    pub(crate) fn of(recipients: impl Iterator<Item = Text>) -> Self {
        let ids: HashSet<Id> = recipients.map(|it| id(&it)).collect();
        Self { of: ids.len(), ids, ..Self::default() }
    }

    /// The last run by which somebody was taken out.
    pub(crate) const fn last(&self) -> Option<&Text> {
        self.last.as_ref()
    }

    /// Whether somebody is one of them.
    pub(crate) fn has(&self, recipient: &str) -> bool {
        self.ids.contains(&id(recipient))
    }

    /// Whether there is nobody.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many were reached, or are to be.
    pub(crate) fn reached(&self) -> usize {
        self.of - self.ids.len()
    }

    /// Nothing is deployed if somebody was reached.
    pub(crate) fn refuse(&self, campaign: &Text) -> Result<(), Refused> {
        let (campaign, reached, of) = (campaign.to_string(), self.reached(), self.of);
        match &self.last {
            Some(last) => Err(Refused::Reached { campaign, reached, of, last: last.to_string() }),
            None => Ok(()),
        }
    }

    /// The audience without those who were reached: stored anew, in parts of the same size.
    pub(crate) async fn gather(
        &self,
        store: &dyn Store,
        scope: &Scope,
        audience: &Audience,
        entropy: &Entropy,
    ) -> Result<Audience, Refused> {
        if self.reached() == 0 {
            return Ok(audience.clone());
        }
        let part_items = audience.parts.iter().copied().max().unwrap_or(1);
        let mut gathering = Gathering::begin(store, scope.clone(), part_items, entropy);
        for number in audience.numbers() {
            for recipient in audience::read(store, &audience.id, number).await? {
                if self.has(&recipient.id) {
                    gathering.add(recipient).await?;
                }
            }
        }
        gathering.finish().await
    }

    /// A commit that is refused if a job was redriven since, and after which nobody redrives one without having looked again.
    pub(crate) fn guard(&self, commit: Commit) -> Commit {
        self.reopenable.iter().fold(commit, |commit, (run, version)| commit.update(run, *version))
    }

    async fn take_reached_by(&mut self, store: &dyn Store, run: &CampaignRun, version: u64) -> Result<(), Error> {
        let before = self.ids.len();
        if rows::run_status(run).is_over() {
            self.take_settled(store, run, version).await?;
        } else {
            for number in 0..run.jobs {
                self.take_open(store, run, number).await?;
            }
        }
        self.note(before, run);
        Ok(())
    }

    fn note(&mut self, before: usize, run: &CampaignRun) {
        if self.ids.len() < before && self.last.is_none() {
            self.last = Some(run.id.clone());
        }
    }

    /// Takes those out whom a job is for.
    async fn take_part(&mut self, store: &dyn Store, run: &CampaignRun, number: u32) -> Result<(), Error> {
        for recipient in audience::read(store, &run.audience_id, number).await? {
            self.ids.remove(&id(&recipient.id));
        }
        Ok(())
    }

    /// Takes those out whom a job of a run has reached, or may reach, that is not over. What becomes of them is not known yet; but
    /// of a run that is cancelled, nobody is reached any more by a job that is over.
    async fn take_open(&mut self, store: &dyn Store, run: &CampaignRun, number: u32) -> Result<(), Error> {
        let id_of_job = rows::job_id(&run.id, number);
        let job: Option<(Job, u64)> = store.get(Key(vec![id_of_job.to_value()])).await?;
        let is_over = job.is_some_and(|(job, _)| rows::job_status(&job).is_over());
        if !is_over || Control::parse(&run.control) != Some(Control::Cancelled) {
            return self.take_part(store, run, number).await;
        }
        for (row, _) in rows::items(store, &id_of_job).await? {
            if !matches!(rows::standing(&row), Standing::Skipped | Standing::Failed) {
                self.ids.remove(&id(&row.recipient_id));
            }
        }
        Ok(())
    }

    /// Takes those out whom a run that is over has reached.
    async fn take_settled(&mut self, store: &dyn Store, run: &CampaignRun, version: u64) -> Result<(), Error> {
        let mut scan = Scan::by::<OutboxItem>(OutboxItem::BY_RUN).equal(&run.id);
        let mut is_reopenable = false;
        loop {
            let page: Vec<(OutboxItem, u64)> = store.list(scan.clone()).await?;
            for (row, _) in &page {
                match rows::standing(row) {
                    Standing::Skipped => {}
                    Standing::Failed => {
                        let is_exhausted = row.reason.as_deref() == Some(Reason::Exhausted.as_str());
                        is_reopenable |= is_exhausted && self.has(&row.recipient_id);
                    }
                    _ => drop(self.ids.remove(&id(&row.recipient_id))),
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == scan.limit => scan = scan.after(last),
                _ => break,
            }
        }
        if is_reopenable {
            self.reopenable.push((run.clone(), version));
        }
        Ok(())
    }
}
