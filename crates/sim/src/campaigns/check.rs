//! What has to be true when things have calmed down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_dispatch::{JobStatus, Standing, Tally};
use onward_dispatcher::{Verdict, standing};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{Job, OutboxItem};
use onward_store::{Records as _, Scan};
use tokio::time::sleep;

use super::World;
use super::provider::Known;

impl World {
    async fn jobs(&self) -> Result<Vec<Job>, String> {
        let rows: Vec<(Job, u64)> = self.store.list(Scan::all::<Job>()).await.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    async fn items(&self) -> Result<Vec<OutboxItem>, String> {
        let rows: Vec<(OutboxItem, u64)> =
            self.store.list(Scan::all::<OutboxItem>()).await.map_err(|error| error.to_string())?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
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
        // Whoever should have ended the run may have been killed: others find it.
        sleep(Duration::from_secs(300)).await;
        self.check_end().await
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

    async fn check_end(&self) -> Result<(), String> {
        let jobs = self.jobs().await?;
        let run = self.campaigns.run(&self.run).await.map_err(|error| error.to_string())?;
        let tally = self.campaigns.tally(&self.run).await.map_err(|error| error.to_string())?;
        let is_over = |job: &Job| JobStatus::parse(&job.status).is_some_and(JobStatus::is_over);
        if !jobs.iter().all(is_over) || &*run.status != tally.outcome(false).as_str() {
            return Err(format!("{run:?} should be over\n{}", self.dump().await));
        }
        let entries = self.campaigns.audit(&self.run, 0, 10_000).await.map_err(|error| error.to_string())?;
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        let ends = events.iter().filter(|event| matches!(**event, "job.completed" | "job.dead")).count();
        let is_whole = events.first() == Some(&"run.deployed")
            && events.last() == Some(&"run.ended")
            && events.iter().filter(|event| **event == "run.ended").count() == 1
            && ends >= jobs.len();
        if is_whole { Ok(()) } else { Err(format!("the audit trail is not whole: {events:?}")) }
    }
}
