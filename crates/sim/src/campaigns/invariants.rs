//! Invariants that must hold after fault injection has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{CampaignRunControl, ItemCounts, ItemReason, ItemState, JobStatus};
use onward_campaign_dispatch::{Resolution, examine_runs, item_state};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{RecordReader as _, TableScan};
use tokio::time::{Instant, sleep};

use super::CampaignWorld;
use super::provider::DeliveryRecord;

impl CampaignWorld {
    async fn read_run(&self) -> Result<CampaignRunRow, String> {
        self.campaigns
            .read_run(&self.run)
            .await
            .map_err(|error| error.to_string())
    }

    /// Returns the jobs of the run.
    pub(super) async fn list_jobs(&self) -> Result<Vec<JobRow>, String> {
        let rows: Vec<(JobRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<JobRow>())
            .await
            .map_err(|error| error.to_string())?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|job| job.run_id == self.run)
            .collect())
    }

    /// Returns the items of the run.
    pub(super) async fn list_items(&self) -> Result<Vec<OutboxItemRow>, String> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .map_err(|error| error.to_string())?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|item| item.run_id == self.run)
            .collect())
    }

    /// Returns the recipients of the run that were not served.
    pub(super) async fn unserved_recipients(&self) -> Result<Vec<String>, String> {
        let is_unserved = |item: &OutboxItemRow| {
            matches!(item_state(item), ItemState::Failed | ItemState::Skipped)
        };
        let items = self.list_items().await?;
        Ok(items
            .iter()
            .filter(|item| is_unserved(item))
            .map(|item| item.recipient_id.to_string())
            .collect())
    }

    /// Returns `true` if no job is running and none will run before an item in doubt is settled.
    pub(super) async fn is_idle(&self) -> Result<bool, String> {
        let is_over =
            |job: &JobRow| JobStatus::parse(&job.status).is_some_and(JobStatus::is_terminal);
        Ok(self
            .list_jobs()
            .await?
            .iter()
            .all(|job| is_over(job) || job.run_after == Timestamp::MAX))
    }

    /// Returns the whole state as text, for debugging a failing seed.
    pub(super) async fn dump_state(&self) -> String {
        format!(
            "{:#?}\n{:#?}\n{:#?}",
            self.list_jobs().await,
            self.list_items().await,
            self.provider.delivery_records()
        )
    }

    /// Checks the state, settles the items in doubt, and checks the state again.
    pub(super) async fn check_invariants(&mut self) -> Result<(), String> {
        let known = self.provider.delivery_records().clone();
        self.report.provider_calls = known.values().map(|it| it.calls).sum();
        if let Some((key, it)) = known.iter().find(|(_, it)| it.deliveries > 1) {
            return Err(format!(
                "{key} was taken {} times\n{}",
                it.deliveries,
                self.dump_state().await
            ));
        }
        self.check_recipients().await?;
        for item in self.list_items().await? {
            if item_state(&item) == ItemState::InDoubt {
                self.settle_item(&item, &known).await?;
            }
        }
        self.check_items(&known).await?;
        self.check_counts().await?;
        // The dispatcher that should have ended the run may have been killed: another one finds the
        // run when it is due, by a clock that may have been shifted.
        let since = Instant::now();
        while self.read_run().await?.ended_at.is_none()
            && since.elapsed() < Duration::from_secs(24 * 3_600)
        {
            sleep(Duration::from_secs(60)).await;
        }
        self.check_run_ended().await?;
        let mut found = Vec::new();
        let looked = examine_runs(&*self.store, None, &mut |flaw| found.push(flaw)).await;
        match (looked, found.as_slice()) {
            (Ok(_), []) => Ok(()),
            (looked, found) => Err(format!("{looked:?} {found:?}\n{}", self.dump_state().await)),
        }
    }

    /// Checks that no recipient was reached by two runs.
    pub(super) async fn check_no_duplicates(&self) -> Result<(), String> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .map_err(|error| error.to_string())?;
        let known = self.provider.delivery_records().clone();
        let taken = |item: &OutboxItemRow| {
            known
                .get(&item.idempotency_key)
                .is_some_and(|it| it.deliveries > 0)
        };
        let mut reached = BTreeSet::new();
        match rows
            .iter()
            .find(|(item, _)| taken(item) && !reached.insert(item.recipient_id.clone()))
        {
            Some((item, _)) => Err(format!(
                "{} was reached twice\n{rows:#?}",
                item.recipient_id
            )),
            None => Ok(()),
        }
    }

    /// Checks that every recipient has exactly one item.
    async fn check_recipients(&self) -> Result<(), String> {
        let wanted: BTreeSet<&str> = self.recipients.iter().map(String::as_str).collect();
        let items = self.list_items().await?;
        let found: BTreeSet<&str> = items.iter().map(|item| &*item.recipient_id).collect();
        if found != wanted || items.len() != wanted.len() {
            return Err(format!(
                "{wanted:?} were to be reached\n{}",
                self.dump_state().await
            ));
        }
        Ok(())
    }

    async fn settle_item(
        &self,
        item: &OutboxItemRow,
        known: &BTreeMap<SharedText, DeliveryRecord>,
    ) -> Result<(), String> {
        let verdict = match known.get(&item.idempotency_key) {
            Some(it) if it.deliveries > 0 => Resolution::Sent(None),
            _ => Resolution::Failed,
        };
        let settled = self
            .campaigns
            .resolve_item(&item.id, &verdict, "sim", "as the provider says")
            .await;
        settled
            .map(drop)
            .map_err(|error| format!("{error}\n{item:?}"))
    }

    /// Checks that the state of every item agrees with the provider's records.
    async fn check_items(
        &mut self,
        known: &BTreeMap<SharedText, DeliveryRecord>,
    ) -> Result<(), String> {
        for item in self.list_items().await? {
            let taken = known
                .get(&item.idempotency_key)
                .is_some_and(|it| it.deliveries > 0);
            let is_right = match item_state(&item) {
                ItemState::Served => taken,
                ItemState::Failed | ItemState::Skipped => !taken,
                ItemState::Unreserved
                | ItemState::Held
                | ItemState::Deferred
                | ItemState::InDoubt => false,
            };
            if !is_right {
                return Err(format!(
                    "taken: {taken}, but {item:?}\n{}",
                    self.dump_state().await
                ));
            }
            self.report.unserved += u32::from(!taken);
        }
        Ok(())
    }

    /// Checks that the counters of the jobs agree with the states of their items.
    async fn check_counts(&self) -> Result<(), String> {
        let items = self.list_items().await?;
        for job in self.list_jobs().await? {
            let its = items
                .iter()
                .filter(|item| item.job_id == job.id)
                .map(item_state);
            let ItemCounts {
                items: rows,
                served,
                failed,
                skipped,
                in_doubt,
            } = ItemCounts::from_states(its);
            // Items without a row are represented by another item and count as skipped.
            let without = u64::from(job.items) - rows;
            let said = [job.served, job.failed, job.skipped, job.in_doubt].map(u64::from);
            if said != [served, failed, skipped + without, in_doubt] {
                return Err(format!(
                    "{job:?} counts wrongly\n{}",
                    self.dump_state().await
                ));
            }
        }
        Ok(())
    }

    async fn check_run_ended(&mut self) -> Result<(), String> {
        let jobs = self.list_jobs().await?;
        let run = self.read_run().await?;
        let tally = self
            .campaigns
            .count_run_items(&self.run)
            .await
            .map_err(|error| error.to_string())?;
        let is_over =
            |job: &JobRow| JobStatus::parse(&job.status).is_some_and(JobStatus::is_terminal);
        let is_cancelled = &*run.control == CampaignRunControl::Cancelled.as_str();
        self.report.cancelled += u32::from(is_cancelled);
        let is_left_out =
            |item: &OutboxItemRow| item.reason.as_deref() == Some(ItemReason::Cancelled.as_str());
        let is_cut_short = self.list_items().await?.iter().any(is_left_out);
        if !jobs.iter().all(is_over)
            || &*run.status != tally.final_run_status(is_cut_short).as_str()
        {
            return Err(format!(
                "{run:?} should be over\n{}",
                self.dump_state().await
            ));
        }
        let entries = self
            .campaigns
            .list_audit_entries(&self.run, 0, 10_000)
            .await
            .map_err(|error| error.to_string())?;
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        let count = |event: &str| events.iter().filter(|it| **it == event).count();
        let is_whole = events.first() == Some(&"run.deployed")
            && events.last() == Some(&"run.ended")
            && (1..=1 + count("job.redriven")).contains(&count("run.ended"))
            && count("job.completed") + count("job.dead") >= jobs.len();
        if is_whole {
            Ok(())
        } else {
            Err(format!("the audit trail is not whole: {events:?}"))
        }
    }
}
