//! Invariants that must hold after fault injection has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{CampaignRunControl, ItemCounts, ItemReason, ItemState, RunCoverage};
use onward_campaign_dispatch::{Resolution, examine_runs, item_state};
use onward_store::tables::{AuditEntryRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{RecordReader as _, TableScan};
use tokio::time::{Instant, sleep};

use super::CampaignWorld;
use super::provider::DeliveryRecord;
use crate::failure::SimFailure;

impl CampaignWorld {
    async fn read_run(&self) -> Result<CampaignRunRow, SimFailure> {
        self.campaigns
            .read_run(&self.run)
            .await
            .map_err(SimFailure::from)
    }

    /// Returns the jobs of the run.
    pub(super) async fn list_jobs(&self) -> Result<Vec<JobRow>, SimFailure> {
        let rows: Vec<(JobRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<JobRow>())
            .await?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|job| job.run_id == self.run)
            .collect())
    }

    /// Returns the items of the run.
    pub(super) async fn list_items(&self) -> Result<Vec<OutboxItemRow>, SimFailure> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|item| item.run_id == self.run)
            .collect())
    }

    /// Returns the recipients of the run that were not reached.
    pub(super) async fn undelivered_recipients(&self) -> Result<Vec<String>, SimFailure> {
        let is_undelivered = |item: &OutboxItemRow| {
            matches!(item_state(item), ItemState::Failed | ItemState::Skipped)
        };
        let items = self.list_items().await?;
        Ok(items
            .iter()
            .filter(|item| is_undelivered(item))
            .map(|item| item.recipient_id.to_string())
            .collect())
    }

    /// Returns `true` if no job is running and none will run before an item in doubt is settled.
    pub(super) async fn is_idle(&self) -> Result<bool, SimFailure> {
        Ok(self
            .list_jobs()
            .await?
            .iter()
            .all(|job| job.status.is_terminal() || job.run_after == Timestamp::MAX))
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
    pub(super) async fn check_invariants(&mut self) -> Result<(), SimFailure> {
        let records = self.provider.delivery_records().clone();
        self.report.provider_calls = records.values().map(|record| record.calls).sum();
        if let Some((key, record)) = records.iter().find(|(_, record)| record.deliveries > 1) {
            return Err(SimFailure::new(format!(
                "the provider accepted {key} {} times\n{}",
                record.deliveries,
                self.dump_state().await
            )));
        }
        self.check_recipients().await?;
        for item in self.list_items().await? {
            if item_state(&item) == ItemState::InDoubt {
                self.settle_item(&item, &records).await?;
            }
        }
        self.check_items(&records).await?;
        self.check_counts().await?;
        // The dispatcher that should have ended the run may have been killed: another one finds the
        // run when it is due, by a clock that may have been shifted.
        let started_at = Instant::now();
        while self.read_run().await?.ended_at.is_none()
            && started_at.elapsed() < Duration::from_secs(24 * 3_600)
        {
            sleep(Duration::from_secs(60)).await;
        }
        self.check_run_ended().await?;
        let mut findings = Vec::new();
        let mut report = |finding| findings.push(finding);
        let stats = examine_runs(&*self.store, None, &mut report).await;
        match (stats, findings.as_slice()) {
            (Ok(_), []) => Ok(()),
            (stats, findings) => Err(SimFailure::new(format!(
                "{stats:?} {findings:?}\n{}",
                self.dump_state().await
            ))),
        }
    }

    /// Checks that no recipient was reached by two runs.
    pub(super) async fn check_no_duplicates(&self) -> Result<(), SimFailure> {
        let rows: Vec<(OutboxItemRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await?;
        let records = self.provider.delivery_records().clone();
        let is_delivered = |item: &OutboxItemRow| {
            records
                .get(&item.idempotency_key)
                .is_some_and(|record| record.deliveries > 0)
        };
        let mut reached = BTreeSet::new();
        match rows
            .iter()
            .find(|(item, _)| is_delivered(item) && !reached.insert(item.recipient_id.clone()))
        {
            Some((item, _)) => Err(SimFailure::new(format!(
                "{} was reached twice\n{rows:#?}",
                item.recipient_id
            ))),
            None => Ok(()),
        }
    }

    /// Checks that every recipient has exactly one item.
    async fn check_recipients(&self) -> Result<(), SimFailure> {
        let expected: BTreeSet<&str> = self.recipients.iter().map(String::as_str).collect();
        let items = self.list_items().await?;
        let actual: BTreeSet<&str> = items.iter().map(|item| &*item.recipient_id).collect();
        if actual != expected || items.len() != expected.len() {
            return Err(SimFailure::new(format!(
                "the recipients with items are {actual:?}, not {expected:?}\n{}",
                self.dump_state().await
            )));
        }
        Ok(())
    }

    async fn settle_item(
        &self,
        item: &OutboxItemRow,
        records: &BTreeMap<SharedText, DeliveryRecord>,
    ) -> Result<(), SimFailure> {
        let resolution = match records.get(&item.idempotency_key) {
            Some(record) if record.deliveries > 0 => Resolution::Sent(None),
            _ => Resolution::Failed,
        };
        let settled = self
            .campaigns
            .resolve_item(&item.id, &resolution, "sim", "records of the provider")
            .await;
        settled
            .map(drop)
            .map_err(|error| SimFailure::new(format!("{error}\n{item:?}")))
    }

    /// Checks that the state of every item agrees with the provider's records.
    async fn check_items(
        &mut self,
        records: &BTreeMap<SharedText, DeliveryRecord>,
    ) -> Result<(), SimFailure> {
        for item in self.list_items().await? {
            let is_delivered = records
                .get(&item.idempotency_key)
                .is_some_and(|record| record.deliveries > 0);
            let is_consistent = match item_state(&item) {
                ItemState::Sent => is_delivered,
                ItemState::Failed | ItemState::Skipped => !is_delivered,
                ItemState::Unreserved
                | ItemState::Reserved
                | ItemState::Deferred
                | ItemState::InDoubt => false,
            };
            if !is_consistent {
                return Err(SimFailure::new(format!(
                    "delivered: {is_delivered}, but {item:?}\n{}",
                    self.dump_state().await
                )));
            }
            self.report.undelivered += u32::from(!is_delivered);
        }
        Ok(())
    }

    /// Checks that the counters of the jobs agree with the states of their items.
    async fn check_counts(&self) -> Result<(), SimFailure> {
        let items = self.list_items().await?;
        for job in self.list_jobs().await? {
            let states = items
                .iter()
                .filter(|item| item.job_id == job.id)
                .map(item_state);
            let ItemCounts {
                items: rows,
                sent,
                failed,
                skipped,
                in_doubt,
            } = ItemCounts::from_states(states);
            // Items without a row are represented by another item and count as skipped.
            let duplicates = u64::from(job.items) - rows;
            let stored = [job.sent, job.failed, job.skipped, job.in_doubt].map(u64::from);
            if stored != [sent, failed, skipped + duplicates, in_doubt] {
                return Err(SimFailure::new(format!(
                    "the counts of {job:?} are wrong\n{}",
                    self.dump_state().await
                )));
            }
        }
        Ok(())
    }

    async fn check_run_ended(&mut self) -> Result<(), SimFailure> {
        let jobs = self.list_jobs().await?;
        let run = self.read_run().await?;
        let counts = self.campaigns.count_run_items(&self.run).await?;
        self.report.cancelled += u32::from(run.control == CampaignRunControl::Cancelled);
        let is_cancelled = |item: &OutboxItemRow| item.reason == Some(ItemReason::Cancelled);
        let coverage = if self.list_items().await?.iter().any(is_cancelled) {
            RunCoverage::CutShort
        } else {
            RunCoverage::AllRecipients
        };
        if !jobs.iter().all(|job| job.status.is_terminal())
            || run.status != counts.final_run_status(coverage)
        {
            return Err(SimFailure::new(format!(
                "{run:?} has not ended, or has the wrong status\n{}",
                self.dump_state().await
            )));
        }
        let entries = self
            .campaigns
            .list_audit_entries(&self.run, 0, 10_000)
            .await?;
        let is_late_answer = |entry: &&AuditEntryRow| {
            &*entry.event == "item.settled"
                && entry
                    .detail
                    .as_ref()
                    .is_some_and(|detail| detail.contains("after the lease was lost"))
        };
        let late = entries.iter().filter(is_late_answer).count();
        self.report.late_answers += u32::try_from(late).unwrap_or(u32::MAX);
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        let count = |event: &str| events.iter().filter(|other| **other == event).count();
        let is_complete = events.first() == Some(&"run.deployed")
            && events.last() == Some(&"run.ended")
            && (1..=1 + count("job.redriven")).contains(&count("run.ended"))
            && count("job.completed") + count("job.dead") >= jobs.len();
        if is_complete {
            Ok(())
        } else {
            Err(SimFailure::new(format!(
                "the audit trail is incomplete: {events:?}"
            )))
        }
    }
}
