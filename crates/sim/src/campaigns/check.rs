//! What has to be true when things have calmed down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_dispatch::{Control, JobStatus, Reason, Standing, Tally};
use onward_dispatcher::{Verdict, examine, standing};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Records as _, Scan};
use tokio::time::{Instant, sleep};

use super::World;
use super::provider::Known;

impl World {
    async fn run(&self) -> Result<CampaignRun, String> {
        self.campaigns.run(&self.run).await.map_err(|error| error.to_string())
    }

    /// The jobs of the run.
    pub(super) async fn jobs(&self) -> Result<Vec<Job>, String> {
        let rows: Vec<(Job, u64)> = self.store.list(Scan::all::<Job>()).await.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|(row, _)| row).filter(|job| job.run_id == self.run).collect())
    }

    /// The items of the run.
    pub(super) async fn items(&self) -> Result<Vec<OutboxItem>, String> {
        let rows: Vec<(OutboxItem, u64)> =
            self.store.list(Scan::all::<OutboxItem>()).await.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|(row, _)| row).filter(|item| item.run_id == self.run).collect())
    }

    /// Those whom the run was to reach, and has not.
    pub(super) async fn unserved(&self) -> Result<Vec<String>, String> {
        let is_unserved = |item: &OutboxItem| matches!(standing(item), Standing::Failed | Standing::Skipped);
        let items = self.items().await?;
        Ok(items.iter().filter(|item| is_unserved(item)).map(|item| item.recipient_id.to_string()).collect())
    }

    /// Whether nobody works, and nobody will before somebody has settled something.
    pub(super) async fn is_idle(&self) -> Result<bool, String> {
        let is_over = |job: &Job| JobStatus::parse(&job.status).is_some_and(JobStatus::is_over);
        Ok(self.jobs().await?.iter().all(|job| is_over(job) || job.run_after == Timestamp::MAX))
    }

    /// All there is to see, for whoever has to find out.
    pub(super) async fn dump(&self) -> String {
        format!("{:#?}\n{:#?}\n{:#?}", self.jobs().await, self.items().await, self.ledger.known())
    }

    /// Checks what is there, settles what is in doubt, and checks what is there then.
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let known = self.ledger.known().clone();
        self.report.calls = known.values().map(|it| it.calls).sum();
        if let Some((key, it)) = known.iter().find(|(_, it)| it.taken > 1) {
            return Err(format!("{key} was taken {} times\n{}", it.taken, self.dump().await));
        }
        self.check_people().await?;
        for item in self.items().await? {
            if standing(&item) == Standing::InDoubt {
                self.settle(&item, &known).await?;
            }
        }
        self.check_items(&known).await?;
        self.check_counts().await?;
        // Whoever should have ended the run may have been killed: others find it, when its time has come by clocks that were set.
        let since = Instant::now();
        while self.run().await?.ended_at.is_none() && since.elapsed() < Duration::from_secs(24 * 3_600) {
            sleep(Duration::from_secs(60)).await;
        }
        self.check_end().await?;
        let mut found = Vec::new();
        let looked = examine(&*self.store, None, &mut |flaw| found.push(flaw)).await;
        match (looked, found.as_slice()) {
            (Ok(_), []) => Ok(()),
            (looked, found) => Err(format!("{looked:?} {found:?}\n{}", self.dump().await)),
        }
    }

    /// Nobody was reached by two runs either.
    pub(super) async fn check_once(&self) -> Result<(), String> {
        let rows: Vec<(OutboxItem, u64)> =
            self.store.list(Scan::all::<OutboxItem>()).await.map_err(|error| error.to_string())?;
        let known = self.ledger.known().clone();
        let taken = |item: &OutboxItem| known.get(&item.idempotency_key).is_some_and(|it| it.taken > 0);
        let mut reached = BTreeSet::new();
        match rows.iter().find(|(item, _)| taken(item) && !reached.insert(item.recipient_id.clone())) {
            Some((item, _)) => Err(format!("{} was reached twice\n{rows:#?}", item.recipient_id)),
            None => Ok(()),
        }
    }

    /// Nobody is missing, and nobody has two rows.
    async fn check_people(&self) -> Result<(), String> {
        let wanted: BTreeSet<&str> = self.recipients.iter().map(String::as_str).collect();
        let items = self.items().await?;
        let found: BTreeSet<&str> = items.iter().map(|item| &*item.recipient_id).collect();
        if found != wanted || items.len() != wanted.len() {
            return Err(format!("{wanted:?} were to be reached\n{}", self.dump().await));
        }
        Ok(())
    }

    async fn settle(&self, item: &OutboxItem, known: &BTreeMap<Text, Known>) -> Result<(), String> {
        let verdict = match known.get(&item.idempotency_key) {
            Some(it) if it.taken > 0 => Verdict::Served(None),
            _ => Verdict::Failed,
        };
        let settled = self.campaigns.settle(&item.id, &verdict, "sim", "as the provider says").await;
        settled.map(drop).map_err(|error| format!("{error}\n{item:?}"))
    }

    /// What the outbox says is what the provider knows.
    async fn check_items(&mut self, known: &BTreeMap<Text, Known>) -> Result<(), String> {
        for item in self.items().await? {
            let taken = known.get(&item.idempotency_key).is_some_and(|it| it.taken > 0);
            let is_right = match standing(&item) {
                Standing::Served => taken,
                Standing::Failed | Standing::Skipped => !taken,
                Standing::Unreserved | Standing::Held | Standing::Free | Standing::InDoubt => false,
            };
            if !is_right {
                return Err(format!("taken: {taken}, but {item:?}\n{}", self.dump().await));
            }
            self.report.unserved += u32::from(!taken);
        }
        Ok(())
    }

    /// Jobs say of their items what those say themselves.
    async fn check_counts(&self) -> Result<(), String> {
        let items = self.items().await?;
        for job in self.jobs().await? {
            let its = items.iter().filter(|item| item.job_id == job.id).map(standing);
            let Tally { items: rows, served, failed, skipped, in_doubt } = Tally::of(its);
            // Others stand for those without a row.
            let without = u64::from(job.items) - rows;
            let said = [job.served, job.failed, job.skipped, job.in_doubt].map(u64::from);
            if said != [served, failed, skipped + without, in_doubt] {
                return Err(format!("{job:?} counts wrongly\n{}", self.dump().await));
            }
        }
        Ok(())
    }

    async fn check_end(&mut self) -> Result<(), String> {
        let jobs = self.jobs().await?;
        let run = self.run().await?;
        let tally = self.campaigns.tally(&self.run).await.map_err(|error| error.to_string())?;
        let is_over = |job: &Job| JobStatus::parse(&job.status).is_some_and(JobStatus::is_over);
        let is_cancelled = &*run.control == Control::Cancelled.as_str();
        self.report.cancelled += u32::from(is_cancelled);
        let is_left_out = |item: &OutboxItem| item.reason.as_deref() == Some(Reason::Cancelled.as_str());
        let is_cut_short = self.items().await?.iter().any(is_left_out);
        if !jobs.iter().all(is_over) || &*run.status != tally.outcome(is_cut_short).as_str() {
            return Err(format!("{run:?} should be over\n{}", self.dump().await));
        }
        let entries = self.campaigns.audit(&self.run, 0, 10_000).await.map_err(|error| error.to_string())?;
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        let count = |event: &str| events.iter().filter(|it| **it == event).count();
        let is_whole = events.first() == Some(&"run.deployed")
            && events.last() == Some(&"run.ended")
            && (1..=1 + count("job.redriven")).contains(&count("run.ended"))
            && count("job.completed") + count("job.dead") >= jobs.len();
        if is_whole { Ok(()) } else { Err(format!("the audit trail is not whole: {events:?}")) }
    }
}
