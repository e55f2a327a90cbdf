//! The commit of a step: the rows of the job, its items and its run after the step, and the audit
//! entries that record it.

use std::collections::BTreeMap;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AttemptOutcome, CampaignRunTransition, ItemChange, ItemCounts, ItemState, JobTransition,
};
use onward_store::Commit;
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
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

impl JobRunner<'_> {
    /// Prepares the commit of a step. With `are_new`, an existing item row makes the commit
    /// conflict, which is the fast path; otherwise existing rows are kept.
    pub(super) fn prepare_commit(
        &self,
        changes: &BTreeMap<usize, ItemChange>,
        tally: &ItemCounts,
        attempts: u32,
        conclusion: Option<AttemptOutcome>,
        are_new: bool,
    ) -> PreparedCommit {
        let now = self.context.clock.now();
        let mut job = self.job.clone();
        job.attempts = attempts;
        if !self.is_held {
            job.lock_epoch += 1;
        }
        row_mapping::write_job_counts(&mut job, tally, now);
        self.apply_outcome(&mut job, conclusion, now);
        if let Some(error) = changes
            .values()
            .rev()
            .find_map(|change| change.error.clone())
        {
            job.error = Some(error);
        }
        // A completed job has no error of its own; the errors of items are in their rows.
        if conclusion == Some(AttemptOutcome::Completed) {
            job.error = None;
        }
        let mut commit = Commit::new().update_columns(&self.job, &job, self.version);
        if let Some(running) =
            row_mapping::run_status(&self.run).next_status(CampaignRunTransition::Start)
        {
            let run = CampaignRunRow {
                status: running.as_str().into(),
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
        let origin = self.item_template();
        let (mut written, mut inserted) = (BTreeMap::new(), Vec::new());
        for (&position, change) in changes {
            let stored = self.rows[position].as_ref();
            let row = stored.map_or_else(
                || origin.new_item(position, &self.recipients[position], now),
                |(row, _)| row.clone(),
            );
            let row =
                row_mapping::apply_change(row, change, row_mapping::run_channel(&self.run), now);
            commit = match stored {
                Some((before, version)) => commit.update_columns(before, &row, *version),
                None => {
                    inserted.push((commit.changes.len(), position));
                    if are_new {
                        commit.insert(&row)
                    } else {
                        commit.insert_or_keep(&row)
                    }
                }
            };
            written.insert(position, row);
        }
        for (event, detail) in self.audit_events(&job, changes, conclusion) {
            commit = audit::append_entry(commit, &self.run, event, &detail, now);
        }
        PreparedCommit {
            job,
            rows: written,
            commit,
            inserted,
        }
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
        conclusion: Option<AttemptOutcome>,
        now: Timestamp,
    ) {
        let (act, run_after) = match conclusion {
            None => {
                let until = now.plus_ms(duration_ms(self.context.lease));
                (job.lock_token, job.locked_until) = (Some(self.commit_mark()), Some(until));
                (None, until)
            }
            Some(AttemptOutcome::Completed) => (Some(JobTransition::Complete), now),
            Some(AttemptOutcome::Dead) => (Some(JobTransition::DeadLetter), now),
            Some(AttemptOutcome::RetryAfter(wait)) => {
                (Some(JobTransition::Fail), now.plus_ms(wait))
            }
            Some(AttemptOutcome::LookUpAfter(wait) | AttemptOutcome::Postponed(wait)) => {
                (Some(JobTransition::Release), now.plus_ms(wait))
            }
            Some(AttemptOutcome::AwaitResolution) => (Some(JobTransition::Release), Timestamp::MAX),
            Some(AttemptOutcome::Released) => (Some(JobTransition::Release), now),
        };
        let mut status = row_mapping::job_status(job);
        // A takeover first releases the job on behalf of the previous worker.
        if !self.is_held {
            let free = status.next_status(JobTransition::Release).unwrap_or(status);
            status = row_mapping::next_job_status(free, JobTransition::Lock);
        }
        if let Some(act) = act {
            status = row_mapping::next_job_status(status, act);
            (job.lock_token, job.locked_until) = (None, None);
        }
        job.status = status.as_str().into();
        job.run_after = run_after;
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
        conclusion: Option<AttemptOutcome>,
    ) -> Vec<(&'static str, Value)> {
        let mut events = Vec::new();
        let about = |detail: Value| {
            let mut about = json!({ "job": &*job.id, "worker": &*self.context.worker_name, "epoch": job.lock_epoch });
            if let (Some(about), Value::Object(detail)) = (about.as_object_mut(), detail) {
                about.extend(detail);
            }
            about
        };
        if !self.is_held
            && row_mapping::job_status(&self.job)
                .next_status(JobTransition::Release)
                .is_some()
        {
            events.push((
                "job.recovered",
                about(json!({ "fromEpoch": self.job.lock_epoch })),
            ));
        }
        let doubts: Vec<SharedText> = changes
            .iter()
            .filter(|(_, change)| change.new_state == ItemState::InDoubt)
            .map(|(position, _)| row_mapping::item_id(&job.id, *position))
            .collect();
        if !doubts.is_empty() {
            let doubts: Vec<&str> = doubts.iter().map(|item| &**item).collect();
            events.push(("items.in_doubt", about(json!({ "items": doubts }))));
        }
        if !self.lookup_results.is_empty() {
            events.push((
                "items.looked_up",
                about(json!({ "found": self.lookup_results })),
            ));
        }
        let event = match conclusion {
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
            Some(AttemptOutcome::Postponed(wait)) if wait >= AUDIT_POSTPONED_MIN_MS => {
                "job.put_off"
            }
            Some(AttemptOutcome::Postponed(_)) => return events,
        };
        let waits = matches!(
            conclusion,
            Some(
                AttemptOutcome::Postponed(_)
                    | AttemptOutcome::RetryAfter(_)
                    | AttemptOutcome::LookUpAfter(_)
            )
        );
        let until = waits.then_some(job.run_after);
        let counts = json!({
            "until": until.map(|until| until.to_string()),
            "served": job.served, "failed": job.failed, "skipped": job.skipped, "inDoubt": job.in_doubt,
            "error": job.error.as_deref(),
        });
        events.push((event, about(counts)));
        events
    }
}
