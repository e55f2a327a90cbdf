//! Performs the steps of a [`JobAttempt`] on one job, while the worker holds the job's lease.

mod admission;
mod sending;
mod step_commit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onward_base::SharedText;
use onward_campaign_core::{
    AttemptDirective, AttemptOutcome, AttemptStep, AudienceRecipient, CampaignRunTransition,
    ItemChange, ItemCounts, ItemProgress, ItemReason, JobAttempt, LookupOutcome,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow, SuppressionRow};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, CommitConflict, Error, RecordReader as _, RowKey, Store,
    StoreErrorKind, TableRecord as _, TableScan,
};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use self::step_commit::PreparedCommit;
use crate::audience::{self};
use crate::clock::EstimatedClock;
use crate::delivery::{CampaignDelivery, SendAdmission};
use crate::entropy::EntropySource;
use crate::item_metrics;
use crate::reservation::{self, DurableCommit};
use crate::row_mapping;

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
    /// Permits at the provider for the items that are about to be reserved.
    send_permits: Option<OwnedSemaphorePermit>,
    /// Results of status lookups of items in doubt, for the audit trail.
    lookup_results: Map<String, Value>,
}

impl<'a> JobRunner<'a> {
    /// Loads the recipients, items and suppressions of a job.
    pub(crate) async fn load_job(
        desk: &'a JobContext,
        (run, run_version): (CampaignRunRow, u64),
        outlet: Arc<CampaignDelivery>,
        (job, version): (JobRow, u64),
    ) -> Result<Self, Error> {
        let recipients =
            audience::read_audience_part(&*desk.store, &run.audience_id, job.number).await?;
        let mut rows: Vec<Option<(OutboxItemRow, u64)>> = vec![None; recipients.len()];
        // A job that was never locked has no reserved items.
        if job.lock_epoch > 0 {
            for (row, version) in row_mapping::read_job_items(&*desk.store, &job.id).await? {
                let Some(place) =
                    row_mapping::item_position(&row.id).and_then(|position| rows.get_mut(position))
                else {
                    return Err(Error::corrupt(format!("item {} is not of its job", row.id)));
                };
                *place = Some((row, version));
            }
        }
        let suppressed = find_suppressed(&*desk.store, &run, &recipients).await?;
        let provider = SharedText::from(outlet.provider.name());
        let scheduled_for = run.scheduled_for.to_string();
        Ok(Self {
            lock_token: desk.entropy.random_id(),
            commit_count: 0,
            is_held: false,
            lease_until: Instant::now(),
            durable_commit: None,
            send_permits: None,
            lookup_results: Map::new(),
            context: desk,
            run,
            run_version,
            delivery: outlet,
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
        let (tally, attempts) = (row_mapping::job_counts(&self.job), self.job.attempts + 1);
        Ok(self
            .persist_step(BTreeMap::new(), tally, attempts, None)
            .await?
            .is_some())
    }

    /// Runs one attempt at the job. `order` returns the current directive and is read before each
    /// step.
    pub(crate) async fn run_attempt(
        mut self,
        order: impl Fn() -> AttemptDirective,
    ) -> Result<JobRunEnd, Error> {
        let now = self.context.clock.now();
        let slot = |row: &Option<(OutboxItemRow, u64)>| {
            row.as_ref().map_or(ItemProgress::NEW, |(row, _)| {
                row_mapping::item_progress(row, now)
            })
        };
        let slots = self.rows.iter().map(slot).collect();
        let mut attempt =
            JobAttempt::new(slots, self.job.attempts + 1, self.delivery.policy, order());
        for position in self.duplicate_positions() {
            attempt.skip_duplicate(position);
        }
        for &position in &self.suppressed {
            attempt.skip_item(position, ItemReason::Suppressed);
        }
        let mut end = JobRunEnd::LeaseLost;
        loop {
            attempt.apply_directive(order());
            match attempt.next_step(self.context.entropy.random_u64()) {
                AttemptStep::Persist {
                    changes,
                    counts: tally,
                    attempts,
                    outcome: conclusion,
                } => {
                    let Some(taken) = self
                        .persist_step(changes, tally, attempts, conclusion)
                        .await?
                    else {
                        return Ok(JobRunEnd::LeaseLost);
                    };
                    attempt.record_persisted(&taken);
                    if let Some(conclusion) = conclusion {
                        end = JobRunEnd::Concluded(conclusion);
                    }
                }
                AttemptStep::Admit(positions, at_most) => {
                    match self.admit_items(&positions, at_most, &order).await? {
                        SendAdmission::Admitted(admitted) => attempt.record_admission(&admitted),
                        SendAdmission::Delayed(wait) => attempt.postpone_job(duration_ms(wait)),
                    }
                }
                AttemptStep::Send(positions) => match self.send_items(&positions).await? {
                    Some(answers) => attempt.record_send_outcomes(answers),
                    None => return Ok(JobRunEnd::LeaseLost),
                },
                AttemptStep::LookUp(positions) => {
                    let found = self.look_up_items(&positions).await?;
                    self.lookup_results = lookup_details(&self.job.id, &found);
                    attempt.record_lookups(found);
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
        changes: BTreeMap<usize, ItemChange>,
        tally: ItemCounts,
        attempts: u32,
        conclusion: Option<AttemptOutcome>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.commit_count += 1;
        // The lease is counted from the first moment at which it may have been stored.
        let (asked, mut is_unheard, mut are_new) = (Instant::now(), false, true);
        loop {
            let written = self.prepare_commit(&changes, &tally, attempts, conclusion, are_new);
            let error =
                match reservation::commit_durably(&*self.context.store, written.commit.clone())
                    .await
                {
                    Ok((receipt, durable)) => {
                        let is_kept = |place: usize| {
                            matches!(receipt.changes.get(place), Some(ChangeOutcome::Kept(_)))
                        };
                        let taken = written
                            .inserted
                            .iter()
                            .filter(|(place, _)| is_kept(*place))
                            .map(|(_, it)| *it);
                        let taken: Vec<usize> = taken.collect();
                        self.durable_commit = Some(durable);
                        self.apply_commit(written, &taken, asked);
                        item_metrics::count_item_changes(changes.values());
                        return Ok(Some(taken));
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
                StoreErrorKind::Conflict if are_new && is_item_conflict(&error) => are_new = false,
                StoreErrorKind::Conflict if is_unheard => {
                    return self.confirm_unknown_commit(written, asked).await;
                }
                StoreErrorKind::Conflict => return Ok(None),
                StoreErrorKind::Retry | StoreErrorKind::Unknown => {
                    is_unheard |= error.kind() == StoreErrorKind::Unknown;
                    tracing::warn!(job = %self.job.id, %error, "a step of a job could not be stored; it is stored again");
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

    /// Applies a durable step to the state in memory.
    fn apply_commit(&mut self, written: PreparedCommit, taken: &[usize], asked: Instant) {
        for (position, row) in written.rows {
            if !taken.contains(&position) {
                let version = self.rows[position]
                    .as_ref()
                    .map_or(1, |(_, version)| version + 1);
                self.rows[position] = Some((row, version));
            }
        }
        (self.job, self.version) = (written.job, self.version + 1);
        (self.is_held, self.lookup_results) = (true, Map::new());
        if let Some(running) =
            row_mapping::run_status(&self.run).next_status(CampaignRunTransition::Start)
        {
            self.run.status = running.as_str().into();
            self.run_version += 1;
        }
        // Safe, because the store counts the lease from a later moment.
        self.lease_until = asked + self.context.lease;
    }

    /// Checks whether a step conflicted because an earlier attempt to commit it, whose outcome was
    /// unknown, succeeded.
    async fn confirm_unknown_commit(
        &mut self,
        written: PreparedCommit,
        asked: Instant,
    ) -> Result<Option<Vec<usize>>, Error> {
        let Some(durable) = reservation::confirm_commit(&*self.context.store, &written.job).await?
        else {
            return Ok(None);
        };
        let stored = row_mapping::read_job_items(&*self.context.store, &self.job.id).await?;
        let found: Vec<SharedText> = stored.into_iter().map(|(row, _)| row.id).collect();
        let is_taken = |(_, position): &&(usize, usize)| {
            !found.contains(&row_mapping::item_id(&self.job.id, *position))
        };
        let taken: Vec<usize> = written
            .inserted
            .iter()
            .filter(is_taken)
            .map(|(_, position)| *position)
            .collect();
        self.durable_commit = Some(durable);
        self.apply_commit(written, &taken, asked);
        Ok(Some(taken))
    }

    async fn reload_run(&mut self) -> Result<(), Error> {
        let run: Option<(CampaignRunRow, u64)> = self
            .context
            .store
            .read_record(RowKey(vec![self.run.id.to_value()]))
            .await?;
        (self.run, self.run_version) =
            run.ok_or_else(|| Error::corrupt("a job without a campaign run"))?;
        Ok(())
    }
}

/// The lookup results of a job's items by item id, without the inconclusive ones.
fn lookup_details(job: &str, found: &[(usize, LookupOutcome)]) -> Map<String, Value> {
    let word = |found: &LookupOutcome| match found {
        LookupOutcome::Accepted(_) => Some("taken"),
        LookupOutcome::Refused(_) => Some("refused"),
        LookupOutcome::NotFound => Some("unknown to it"),
        LookupOutcome::Unknown => None,
    };
    let said = found
        .iter()
        .filter_map(|(position, found)| Some((*position, word(found)?)));
    said.map(|(position, word)| (row_mapping::item_id(job, position).to_string(), word.into()))
        .collect()
}

/// The positions of the recipients that are on the suppression list of the run's channel.
async fn find_suppressed(
    store: &dyn Store,
    run: &CampaignRunRow,
    recipients: &[AudienceRecipient],
) -> Result<Vec<usize>, Error> {
    let (tenant, workspace, channel) = (&run.tenant_id, &run.workspace_id, &run.channel);
    let any = TableScan::all_rows::<SuppressionRow>()
        .where_equal(tenant)
        .where_equal(workspace)
        .where_equal(channel)
        .with_limit(1);
    if store.scan_rows(any).await?.is_empty() {
        return Ok(Vec::new());
    }
    let of = async |position: usize| -> Result<Option<usize>, Error> {
        let address = SharedText::from(recipients[position].address.to_lowercase());
        let key = RowKey(vec![
            tenant.to_value(),
            workspace.to_value(),
            channel.to_value(),
            address.to_value(),
        ]);
        Ok(store
            .read_row(SuppressionRow::TABLE, key)
            .await?
            .map(|_| position))
    };
    let found = join_all((0..recipients.len()).map(of)).await;
    found.into_iter().filter_map(Result::transpose).collect()
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
