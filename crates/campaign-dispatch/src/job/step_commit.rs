//! The commit of a step: the rows of the job, its items and its run after the step, and the audit
//! entries that record it.

use std::collections::BTreeMap;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AttemptOutcome, CampaignRunTransition, ItemChange, ItemCounts, ItemState, JobTransition,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{Commit, Error};
use serde_json::{Value, json};

use super::{JobRunner, duration_ms};
use crate::audit;
use crate::row_mapping::{self, ItemTemplate};

/// Minimum postponement in milliseconds that is recorded in the audit trail.
const AUDIT_POSTPONED_MIN_MS: u64 = 60_000;

/// The commit of a step, with the rows as they are after it.
pub(super) struct PreparedCommit {
    pub(super) job: JobRow,
    pub(super) rows: BTreeMap<usize, OutboxItemRow>,
    pub(super) commit: Commit,
    /// For each inserted item: the index of its insert in the commit, and its position in the job.
    pub(super) inserted: Vec<(usize, usize)>,
}

/// How a commit treats an item that is new to this worker and already has a row, because another
/// item has the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateItems {
    /// The commit conflicts. This is the fast path.
    Conflict,
    /// The commit keeps the existing row.
    Keep,
}

impl JobRunner<'_> {
    /// Prepares the commit of a step.
    pub(super) fn prepare_commit(
        &self,
        changes: &BTreeMap<usize, ItemChange>,
        counts: &ItemCounts,
        attempts: u32,
        outcome: Option<AttemptOutcome>,
        duplicates: DuplicateItems,
    ) -> Result<PreparedCommit, Error> {
        let now = self.context.clock.now();
        let mut job = self.job.clone();
        job.attempts = attempts;
        if !self.is_held {
            job.lock_epoch += 1;
        }
        row_mapping::write_job_counts(&mut job, counts, now);
        self.apply_outcome(&mut job, outcome, now)?;
        if let Some(error) = changes
            .values()
            .rev()
            .find_map(|change| change.error.clone())
        {
            job.error = Some(error);
        }
        // A completed job keeps the last error only if items failed; it is in their rows as well.
        if outcome == Some(AttemptOutcome::Completed) && counts.failed == 0 {
            job.error = None;
        }
        let mut commit = Commit::new().update_columns(&self.job, &job, self.version);
        if let Some(status) = self.run.status.next_status(CampaignRunTransition::Start) {
            let run = CampaignRunRow {
                status,
                ..self.run.clone()
            };
            commit = commit.update(&run, self.run_version);
            commit = audit::append_entry(
                commit,
                &run,
                "run.began",
                &json!({ "by": &*self.context.worker_name }),
                now,
            );
        }
        let template = self.item_template();
        let (mut rows, mut inserted) = (BTreeMap::new(), Vec::new());
        for (&position, change) in changes {
            let stored = self.rows[position].as_ref();
            let row = stored.map_or_else(
                || template.new_item(position, &self.recipients[position], now),
                |(row, _)| row.clone(),
            );
            let row = row_mapping::apply_change(row, change, self.run.channel, now);
            commit = match stored {
                Some((before, version)) => commit.update_columns(before, &row, *version),
                None => {
                    inserted.push((commit.changes.len(), position));
                    match duplicates {
                        DuplicateItems::Conflict => commit.insert(&row),
                        DuplicateItems::Keep => commit.insert_or_keep(&row),
                    }
                }
            };
            rows.insert(position, row);
        }
        for (event, detail) in self.audit_events(&job, changes, outcome) {
            commit = audit::append_entry(commit, &self.run, event, &detail, now);
        }
        Ok(PreparedCommit {
            job,
            rows,
            commit,
            inserted,
        })
    }

    fn item_template(&self) -> ItemTemplate<'_> {
        let Self {
            run,
            job,
            provider,
            scheduled_for,
            ..
        } = self;
        ItemTemplate {
            run,
            job,
            provider,
            scheduled_for,
        }
    }

    /// Sets the job's status and lease after a step: it stays with this worker, or the outcome of
    /// the attempt decides.
    pub(super) fn apply_outcome(
        &self,
        job: &mut JobRow,
        outcome: Option<AttemptOutcome>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (transition, run_after) = match outcome {
            None => {
                let until = now.plus_ms(duration_ms(self.context.lease));
                (job.lock_token, job.locked_until) = (Some(self.commit_mark()), Some(until));
                (None, until)
            }
            Some(AttemptOutcome::Completed) => (Some(JobTransition::Complete), now),
            Some(AttemptOutcome::Dead) => (Some(JobTransition::DeadLetter), now),
            Some(AttemptOutcome::RetryAfter(delay)) => {
                (Some(JobTransition::Fail), now.plus_ms(delay))
            }
            Some(AttemptOutcome::LookUpAfter(delay) | AttemptOutcome::Postponed(delay)) => {
                (Some(JobTransition::Release), now.plus_ms(delay))
            }
            Some(AttemptOutcome::AwaitResolution) => (Some(JobTransition::Release), Timestamp::MAX),
            Some(AttemptOutcome::Released) => (Some(JobTransition::Release), now),
        };
        // A takeover first releases the job on behalf of the previous worker.
        if !self.is_held {
            let released = job.status.next_status(JobTransition::Release);
            let status = released.unwrap_or(job.status);
            job.status = row_mapping::next_job_status(job, status, JobTransition::Lock)?;
        }
        if let Some(transition) = transition {
            job.status = row_mapping::next_job_status(job, job.status, transition)?;
            (job.lock_token, job.locked_until) = (None, None);
        }
        job.run_after = run_after;
        Ok(())
    }

    /// The mark that the current commit writes into the job's row.
    fn commit_mark(&self) -> SharedText {
        format!("{}.{}", self.lock_token, self.commit_count).into()
    }

    /// The audit events of a step.
    fn audit_events(
        &self,
        job: &JobRow,
        changes: &BTreeMap<usize, ItemChange>,
        outcome: Option<AttemptOutcome>,
    ) -> Vec<(&'static str, Value)> {
        let mut events = Vec::new();
        let is_takeover = !self.is_held
            && self
                .job
                .status
                .next_status(JobTransition::Release)
                .is_some();
        if is_takeover {
            let detail = json!({ "fromEpoch": self.job.lock_epoch });
            events.push(("job.recovered", self.audit_detail(job, detail)));
        }
        for (event, state) in [
            ("items.in_doubt", ItemState::InDoubt),
            ("items.resent", ItemState::Reserved),
        ] {
            let items: Vec<String> = changes
                .iter()
                .filter(|(position, change)| {
                    change.new_state == state
                        && (state == ItemState::InDoubt || self.may_have_been_sent(**position))
                })
                .map(|(position, _)| row_mapping::item_id(&job.id, *position).to_string())
                .collect();
            if !items.is_empty() {
                events.push((event, self.audit_detail(job, json!({ "items": items }))));
            }
        }
        if !self.lookup_results.is_empty() {
            let detail = json!({ "found": self.lookup_results });
            events.push(("items.looked_up", self.audit_detail(job, detail)));
        }
        let event = match outcome {
            None => return events,
            // A lookup without a new result is not recorded.
            Some(AttemptOutcome::LookUpAfter(_) | AttemptOutcome::AwaitResolution)
                if !self.is_held && events.is_empty() =>
            {
                return events;
            }
            Some(AttemptOutcome::Completed) => "job.completed",
            Some(AttemptOutcome::Dead) => "job.dead",
            Some(AttemptOutcome::RetryAfter(_)) => "job.failed",
            Some(AttemptOutcome::LookUpAfter(_) | AttemptOutcome::AwaitResolution) => {
                "job.in_doubt"
            }
            Some(AttemptOutcome::Released) => "job.released",
            Some(AttemptOutcome::Postponed(delay)) if delay >= AUDIT_POSTPONED_MIN_MS => {
                "job.postponed"
            }
            Some(AttemptOutcome::Postponed(_)) => return events,
        };
        let is_delayed = matches!(
            outcome,
            Some(
                AttemptOutcome::Postponed(_)
                    | AttemptOutcome::RetryAfter(_)
                    | AttemptOutcome::LookUpAfter(_)
            )
        );
        let until = is_delayed.then_some(job.run_after);
        let counts = json!({
            "until": until.map(|until| until.to_string()),
            "sent": job.sent, "failed": job.failed, "skipped": job.skipped, "inDoubt": job.in_doubt,
            "error": job.error.as_deref(),
        });
        events.push((event, self.audit_detail(job, counts)));
        events
    }

    /// Whether a call for the item may have reached the provider: it is in doubt, or the worker
    /// that had reserved it was lost.
    fn may_have_been_sent(&self, position: usize) -> bool {
        self.rows[position].as_ref().is_some_and(|(row, _)| {
            matches!(
                row_mapping::item_state(row),
                ItemState::InDoubt | ItemState::Reserved
            )
        })
    }

    /// The details of an audit event: the job, the worker and the epoch, and the event's own.
    fn audit_detail(&self, job: &JobRow, detail: Value) -> Value {
        let mut all = json!({
            "job": &*job.id,
            "worker": &*self.context.worker_name,
            "epoch": job.lock_epoch,
        });
        if let (Some(all), Value::Object(detail)) = (all.as_object_mut(), detail) {
            all.extend(detail);
        }
        all
    }
}
