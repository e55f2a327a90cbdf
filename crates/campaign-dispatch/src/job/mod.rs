//! Performs the steps of a [`JobAttempt`] on one job, while the worker holds the job's lease.

mod admission;
mod late_answers;
mod sending;
mod step_commit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::{
    AttemptDirective, AttemptOutcome, AttemptStep, AudienceRecipient, CampaignRunTransition,
    ItemChange, ItemCounts, ItemProgress, ItemReason, JobAttempt, LookupOutcome,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, CommitConflict, Error, RecordReader as _, RowKey, Store,
    StoreErrorKind, TableRecord as _,
};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use self::step_commit::{DuplicateItems, PreparedCommit};
use crate::audience;
use crate::clock::EstimatedClock;
use crate::delivery::{CampaignDelivery, SendAdmission};
use crate::dispatcher::Options;
use crate::entropy::EntropySource;
use crate::item_metrics;
use crate::reservation::{self, DurableCommit};
use crate::row_mapping;
use crate::suppressions;

/// Delay before a failed store operation is retried.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A lease is renewed when 1/`LEASE_RENEW_DIVISOR` of it has passed.
const LEASE_RENEW_DIVISOR: u32 = 3;

/// How the processing of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobRunEnd {
    /// The attempt ended with this outcome, which is durable.
    Concluded(AttemptOutcome),
    /// The lease was lost: another worker holds the job now, or may hold it.
    LeaseLost,
}

/// The resources that a worker needs to process a job.
pub(crate) struct JobContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: EstimatedClock,
    pub(crate) lease: Duration,
    pub(crate) worker_name: SharedText,
    pub(crate) entropy: EntropySource,
}

impl JobContext {
    /// Creates the context of a job from the options of the dispatcher and the store's time.
    pub(crate) async fn new(store: Arc<dyn Store>, options: Options) -> Result<Self, Error> {
        let clock = EstimatedClock::read_from_store(&*store).await?;
        let Options {
            lease,
            worker_name,
            entropy,
            ..
        } = options;
        Ok(Self {
            store,
            clock,
            lease,
            worker_name,
            entropy,
        })
    }
}

/// Processes one job: its rows, its lease and the delivery of its items.
pub(crate) struct JobRunner<'a> {
    context: &'a JobContext,
    run: CampaignRunRow,
    run_version: u64,
    delivery: Arc<CampaignDelivery>,
    job: JobRow,
    version: u64,
    lock_token: SharedText,
    /// Number of commits attempted. Each commit writes its own mark into the job's row, so that
    /// none is mistaken for another.
    commit_count: u32,
    /// Whether this worker holds the job's lease, as far as it knows.
    is_held: bool,
    lease_until: Instant,
    recipients: Vec<AudienceRecipient>,
    /// Positions of the recipients on the suppression list.
    suppressed: Vec<usize>,
    rows: Vec<Option<(OutboxItemRow, u64)>>,
    provider: SharedText,
    scheduled_for: String,
    durable_commit: Option<DurableCommit>,
    /// Permits at the provider for the items that are reserved or about to be. They are kept until
    /// the outcomes of the sends are stored.
    send_permits: Option<OwnedSemaphorePermit>,
    /// Results of status lookups of items in doubt, for the audit trail.
    lookup_results: Map<String, Value>,
}

impl<'a> JobRunner<'a> {
    /// Loads the recipients, items and suppressions of a job.
    pub(crate) async fn load_job(
        context: &'a JobContext,
        (run, run_version): (CampaignRunRow, u64),
        delivery: Arc<CampaignDelivery>,
        (job, version): (JobRow, u64),
    ) -> Result<Self, Error> {
        let recipients =
            audience::read_audience_part(&*context.store, &run.audience_id, job.number).await?;
        let mut rows: Vec<Option<(OutboxItemRow, u64)>> = vec![None; recipients.len()];
        // A job that was never locked has no reserved items.
        if job.lock_epoch > 0 {
            for (row, version) in row_mapping::read_job_items(&*context.store, &job.id).await? {
                let position = row_mapping::row_position(&row, recipients.len())?;
                rows[position] = Some((row, version));
            }
        }
        let suppressed = suppressions::find_suppressed(&*context.store, &run, &recipients).await?;
        let provider = SharedText::from(delivery.provider.name());
        let scheduled_for = run.scheduled_for.to_string();
        Ok(Self {
            lock_token: context.entropy.random_id(),
            commit_count: 0,
            is_held: false,
            lease_until: Instant::now(),
            durable_commit: None,
            send_permits: None,
            lookup_results: Map::new(),
            context,
            run,
            run_version,
            delivery,
            job,
            version,
            recipients,
            suppressed,
            rows,
            provider,
            scheduled_for,
        })
    }

    /// Claims the job and does nothing more. Returns whether the claim succeeded.
    pub(crate) async fn lock_job(mut self) -> Result<bool, Error> {
        let (counts, attempts) = (row_mapping::job_counts(&self.job), self.job.attempts + 1);
        Ok(self
            .persist_step(&BTreeMap::new(), counts, attempts, None)
            .await?
            .is_some())
    }

    /// Runs one attempt at the job. `directive` returns the current directive and is called before
    /// each step.
    pub(crate) async fn run_attempt(
        mut self,
        directive: impl Fn() -> AttemptDirective,
    ) -> Result<JobRunEnd, Error> {
        let now = self.context.clock.now();
        let read_progress = |row: &Option<(OutboxItemRow, u64)>| {
            row.as_ref().map_or(ItemProgress::NEW, |(row, _)| {
                row_mapping::item_progress(row, now)
            })
        };
        let items = self.rows.iter().map(read_progress).collect();
        let mut attempt = JobAttempt::new(
            items,
            self.job.attempts + 1,
            self.delivery.policy,
            directive(),
        );
        for position in self.duplicate_positions() {
            attempt.skip_duplicate(position);
        }
        for &position in &self.suppressed {
            attempt.skip_item(position, ItemReason::Suppressed);
        }
        let mut end = JobRunEnd::LeaseLost;
        loop {
            attempt.apply_directive(directive());
            match attempt.next_step(self.context.entropy.random_u64()) {
                AttemptStep::Persist {
                    changes,
                    counts,
                    attempts,
                    outcome,
                } => {
                    let Some(duplicates) = self
                        .persist_step(&changes, counts, attempts, outcome)
                        .await?
                    else {
                        self.record_late_answers(&changes).await;
                        return Ok(JobRunEnd::LeaseLost);
                    };
                    attempt.record_persisted(&duplicates);
                    if let Some(outcome) = outcome {
                        end = JobRunEnd::Concluded(outcome);
                    }
                }
                // Outcomes are persisted together with the next reservations only if the worker
                // does not have to wait for these.
                AttemptStep::Admit(positions, at_most) if attempt.has_unstored_changes() => {
                    match self.admit_at_once(&positions, at_most) {
                        Some(admitted) => attempt.record_admission(&admitted),
                        None => attempt.persist_before_waiting(),
                    }
                }
                AttemptStep::Admit(positions, at_most) => {
                    match self.admit_items(&positions, at_most, &directive).await? {
                        SendAdmission::Admitted(admitted) => attempt.record_admission(&admitted),
                        SendAdmission::Delayed(delay) => attempt.postpone_job(duration_ms(delay)),
                    }
                }
                AttemptStep::Send(positions) => match self.send_items(&positions).await? {
                    Some(outcomes) => attempt.record_send_outcomes(outcomes),
                    None => return Ok(JobRunEnd::LeaseLost),
                },
                AttemptStep::LookUp(positions) => {
                    let outcomes = self.look_up_items(&positions).await?;
                    self.lookup_results = lookup_details(&self.job.id, &outcomes);
                    attempt.record_lookups(outcomes);
                }
                AttemptStep::Finished => return Ok(end),
            }
        }
    }

    /// Positions of recipients that occur earlier in the job: only the first occurrence is sent to.
    fn duplicate_positions(&self) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        (0..self.recipients.len())
            .filter(|position| !seen.insert(&self.recipients[*position].id))
            .collect()
    }

    /// Makes a step durable. Returns the positions of the items whose idempotency key another row
    /// already has, or `None` if this worker no longer holds the job.
    async fn persist_step(
        &mut self,
        changes: &BTreeMap<usize, ItemChange>,
        counts: ItemCounts,
        attempts: u32,
        outcome: Option<AttemptOutcome>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.commit_count += 1;
        // The lease is counted from the first moment at which it may have been stored.
        let requested_at = Instant::now();
        let (mut is_outcome_unknown, mut duplicates) = (false, DuplicateItems::Conflict);
        loop {
            let prepared = self.prepare_commit(changes, &counts, attempts, outcome, duplicates)?;
            let commit = prepared.commit.clone();
            let error = match reservation::commit_durably(&*self.context.store, commit).await {
                Ok((receipt, durable)) => {
                    let is_kept = |index: usize| {
                        matches!(receipt.changes.get(index), Some(ChangeOutcome::Kept(_)))
                    };
                    let kept = prepared
                        .inserted
                        .iter()
                        .filter(|(index, _)| is_kept(*index));
                    let kept: Vec<usize> = kept.map(|(_, position)| *position).collect();
                    self.durable_commit = Some(durable);
                    self.apply_commit(prepared, &kept, requested_at);
                    item_metrics::count_item_changes(changes.values());
                    return Ok(Some(kept));
                }
                Err(error) => error,
            };
            match error.kind() {
                StoreErrorKind::Conflict
                    if is_version_conflict(&error, CampaignRunRow::TABLE.name) =>
                {
                    self.reload_run().await?
                }
                // Some of the items are duplicates of other rows: keep those rows.
                StoreErrorKind::Conflict
                    if duplicates == DuplicateItems::Conflict && is_item_conflict(&error) =>
                {
                    duplicates = DuplicateItems::Keep;
                }
                StoreErrorKind::Conflict if is_outcome_unknown => {
                    return self.confirm_unknown_commit(prepared, requested_at).await;
                }
                StoreErrorKind::Conflict => return Ok(None),
                StoreErrorKind::Retry | StoreErrorKind::Unknown => {
                    is_outcome_unknown |= error.kind() == StoreErrorKind::Unknown;
                    tracing::warn!(job = %self.job.id, %error, "committing a step of a job failed; retrying");
                    if self.is_held && Instant::now() >= self.lease_until {
                        return Ok(None);
                    }
                    sleep(STORE_RETRY_DELAY).await;
                }
                StoreErrorKind::Invalid | StoreErrorKind::Corrupt | StoreErrorKind::Fatal => {
                    return Err(error);
                }
            }
        }
    }

    /// Applies a durable step to the state in memory. `duplicates` lists the positions whose rows
    /// belong to other items.
    fn apply_commit(
        &mut self,
        prepared: PreparedCommit,
        duplicates: &[usize],
        requested_at: Instant,
    ) {
        for (position, row) in prepared.rows {
            if !duplicates.contains(&position) {
                let version = self.rows[position]
                    .as_ref()
                    .map_or(1, |(_, version)| version + 1);
                self.rows[position] = Some((row, version));
            }
        }
        (self.job, self.version) = (prepared.job, self.version + 1);
        (self.is_held, self.lookup_results) = (true, Map::new());
        if let Some(status) = self.run.status.next_status(CampaignRunTransition::Start) {
            self.run.status = status;
            self.run_version += 1;
        }
        // Safe, because the store counts the lease from a later moment.
        self.lease_until = requested_at + self.context.lease;
    }

    /// Checks whether a step conflicted because an earlier attempt to commit it, whose outcome was
    /// unknown, succeeded.
    async fn confirm_unknown_commit(
        &mut self,
        prepared: PreparedCommit,
        requested_at: Instant,
    ) -> Result<Option<Vec<usize>>, Error> {
        let Some(durable) =
            reservation::confirm_commit(&*self.context.store, &prepared.job).await?
        else {
            return Ok(None);
        };
        let stored = row_mapping::read_job_items(&*self.context.store, &self.job.id).await?;
        let stored: BTreeSet<SharedText> = stored.into_iter().map(|(row, _)| row.id).collect();
        let is_duplicate =
            |position: &usize| !stored.contains(&row_mapping::item_id(&self.job.id, *position));
        let inserted = prepared.inserted.iter().map(|(_, position)| *position);
        let duplicates: Vec<usize> = inserted.filter(is_duplicate).collect();
        self.durable_commit = Some(durable);
        self.apply_commit(prepared, &duplicates, requested_at);
        Ok(Some(duplicates))
    }

    async fn reload_run(&mut self) -> Result<(), Error> {
        let run: Option<(CampaignRunRow, u64)> = self
            .context
            .store
            .read_record(RowKey(vec![self.run.id.to_value()]))
            .await?;
        (self.run, self.run_version) =
            run.ok_or_else(|| Error::corrupt(format!("job {} has no campaign run", self.job.id)))?;
        Ok(())
    }
}

/// The lookup results of a job's items by item id, without the inconclusive ones.
fn lookup_details(job: &str, outcomes: &[(usize, LookupOutcome)]) -> Map<String, Value> {
    let name = |outcome: &LookupOutcome| match outcome {
        LookupOutcome::Accepted(_) => Some("accepted"),
        LookupOutcome::Refused(_) => Some("refused"),
        LookupOutcome::NotFound => Some("not found"),
        LookupOutcome::Unknown => None,
    };
    let known = outcomes
        .iter()
        .filter_map(|(position, outcome)| Some((*position, name(outcome)?)));
    known
        .map(|(position, name)| (row_mapping::item_id(job, position).to_string(), name.into()))
        .collect()
}

/// Whether a commit conflicted because an item row with the same id or idempotency key exists.
fn is_item_conflict(error: &Error) -> bool {
    let Error::Conflict(
        CommitConflict::RowExists { table, .. } | CommitConflict::NotUnique { table, .. },
    ) = error
    else {
        return false;
    };
    *table == OutboxItemRow::TABLE.name
}

/// Whether a commit conflicted because a row of this table has another version.
fn is_version_conflict(error: &Error, name: &str) -> bool {
    matches!(error, Error::Conflict(CommitConflict::RowVersion { table, .. }) if *table == name)
}

fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
