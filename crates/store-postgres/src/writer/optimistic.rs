//! Fast path for a group that only appends run events: one statement without a read before it. The
//! statement assumes that the cached heads of the runs are current, and stores nothing at all if
//! they are not or if an event is already stored.

use std::collections::BTreeMap;

use deadpool_postgres::{ClientWrapper, Object};
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{IdempotencyKey, RunEventId, RunId, RunSeq};
use onward_store::{
    AdmittedCommit, ColumnValue, CommitReceipt, Duplicates, Error, PlannedEvent, RowKey, RunHead,
    StoredEvent, StoredRow, StoredState, TableSchema, plan_commit,
};
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::connection;
use crate::error::StatementFailure;
use crate::pipeline::PipelineStatement;
use crate::run_event;
use crate::value::{PostgresTimestamp, count_to_sql};
use crate::writer::run_head_cache::RunHeadCache;
use crate::writer::{PostgresWriter, is_idempotent};

/// Maximum size in bytes of a group that goes in one statement.
const OPTIMISTIC_BYTES_MAX: usize = 16 << 20;

/// Appends one event to a run whose head is as cached.
const APPEND_EVENT: &str = include_str!("../../statements/append_event.sql");

/// Appends the first event of a run.
const BEGIN_RUN: &str = include_str!("../../statements/begin_run.sql");

/// Appends any number of events to any number of runs.
const APPEND_EVENTS: &str = include_str!("../../statements/append_events.sql");

/// Result of an optimistic attempt.
pub(super) enum OptimisticOutcome {
    /// All commits are stored.
    Committed(Vec<CommitReceipt>),
    /// The group does not qualify for the fast path.
    NotApplicable,
    /// Nothing is stored.
    RolledBack,
    /// It is unknown whether the commits are stored; contains the reason.
    Unknown(String),
}

/// Result of the store's rules for a group, provided that the cached heads are current. The
/// timestamps are lower bounds.
struct OptimisticPlan<'a> {
    receipts: Vec<CommitReceipt>,
    events: Vec<PlannedEvent<'a>>,
    /// Each run's cached head, `None` if the run is assumed to be new, and its head after the
    /// commit.
    runs: Vec<(Option<RunHead>, RunHead)>,
}

impl PostgresWriter {
    /// Tries the fast path if the group qualifies for it.
    pub(super) async fn commit_optimistically(
        &mut self,
        commits: &[&AdmittedCommit],
        bytes: usize,
    ) -> OptimisticOutcome {
        let is_short = bytes <= OPTIMISTIC_BYTES_MAX
            && commits.iter().all(|commit| is_idempotent(commit.commit()));
        let guess = if is_short {
            plan_optimistically(commits, &self.head_cache)
        } else {
            None
        };
        let Some(guess) = guess else {
            return OptimisticOutcome::NotApplicable;
        };
        let Ok(client) = connection::acquire_connection(&self.pool).await else {
            return OptimisticOutcome::NotApplicable;
        };
        let now = self.clock.as_ref().map(|clock| clock.now());
        match timeout(self.call_timeout, execute_plan(&client, &guess, now)).await {
            Ok(Ok(Some(stamp))) => OptimisticOutcome::Committed(self.finish_commit(guess, stamp)),
            Ok(Err(StatementFailure::ConnectionLost(why))) => {
                drop(Object::take(client));
                OptimisticOutcome::Unknown(why.to_string())
            }
            Ok(undone) => {
                tracing::debug!(
                    ?undone,
                    "optimistic commit rolled back: a cached run head is outdated, or an event already exists"
                );
                guess
                    .runs
                    .iter()
                    .for_each(|(_, head)| self.head_cache.remove(&head.run_id));
                OptimisticOutcome::RolledBack
            }
            Err(_) => {
                drop(Object::take(client));
                OptimisticOutcome::Unknown("the database did not answer in time".to_owned())
            }
        }
    }

    /// Fills in the timestamps that the database assigned and caches the new heads.
    fn finish_commit(&mut self, guess: OptimisticPlan<'_>, stamp: Timestamp) -> Vec<CommitReceipt> {
        for (_, mut head) in guess.runs {
            head.last_persisted_at = head.last_persisted_at.max(stamp);
            self.head_cache.insert(head);
        }
        let mut receipts = guess.receipts;
        for appended in receipts.iter_mut().flat_map(|receipt| &mut receipt.events) {
            appended.result.persisted_at = appended.result.persisted_at.max(stamp);
        }
        receipts
    }
}

/// Applies the store's rules to a group; `None` if they reject a commit or if there is nothing to
/// append.
fn plan_optimistically<'a>(
    commits: &[&'a AdmittedCommit],
    heads: &RunHeadCache,
) -> Option<OptimisticPlan<'a>> {
    let mut believed = CachedHeads {
        heads,
        changed: BTreeMap::new(),
    };
    let (mut receipts, mut events) = (Vec::with_capacity(commits.len()), Vec::new());
    for commit in commits {
        let plan = plan_commit(
            commit,
            &mut believed,
            Timestamp::MIN,
            Duplicates::Optimistic,
        )
        .ok()?;
        events.extend(plan.events);
        believed.changed.extend(
            plan.heads
                .into_iter()
                .map(|head| (head.run_id.clone(), head)),
        );
        receipts.push(plan.receipt);
    }
    let runs = believed
        .changed
        .into_values()
        .map(|head| (heads.get(&head.run_id).cloned(), head))
        .collect();
    if events.is_empty() {
        None
    } else {
        Some(OptimisticPlan {
            receipts,
            events,
            runs,
        })
    }
}

/// Returns the timestamp of the commit; `None` if nothing was stored because a run's head is not as
/// cached.
async fn execute_plan(
    client: &ClientWrapper,
    guess: &OptimisticPlan<'_>,
    now: Option<Timestamp>,
) -> Result<Option<Timestamp>, StatementFailure> {
    let step = match guess.events[..] {
        [event] => {
            let sql = if event.run_seq == RunSeq::ZERO.next_seq() {
                BEGIN_RUN
            } else {
                APPEND_EVENT
            };
            run_event::with_event_values(PipelineStatement::new(sql), event)
                .with_param(now.map(PostgresTimestamp))
        }
        _ => append_statement(guess, now),
    };
    let statement = client.prepare_cached(&step.sql).await?;
    let rows: Vec<Row> = client.query(&statement, &step.param_refs()).await?;
    Ok(rows
        .first()
        .map(|row| row.try_get::<_, PostgresTimestamp>(0))
        .transpose()?
        .map(|stamp| stamp.0))
}

fn append_statement<'a>(
    guess: &'a OptimisticPlan<'_>,
    now: Option<Timestamp>,
) -> PipelineStatement<'a> {
    let continued: Vec<(&RunHead, &RunHead)> = guess
        .runs
        .iter()
        .filter_map(|(before, after)| before.as_ref().map(|before| (before, after)))
        .collect();
    let begun: Vec<&RunHead> = guess
        .runs
        .iter()
        .filter(|(before, _)| before.is_none())
        .map(|(_, after)| after)
        .collect();
    let whose = |step: PipelineStatement<'a>, heads: &[&'a RunHead]| {
        step.with_param(
            heads
                .iter()
                .map(|head| &*head.run_id)
                .collect::<Vec<&str>>(),
        )
        .with_param(
            heads
                .iter()
                .map(|head| &*head.tenant_id)
                .collect::<Vec<&str>>(),
        )
        .with_param(
            heads
                .iter()
                .map(|head| &*head.project_id)
                .collect::<Vec<&str>>(),
        )
        .with_param(
            heads
                .iter()
                .map(|head| &*head.environment_id)
                .collect::<Vec<&str>>(),
        )
    };
    let seq = |head: &RunHead| count_to_sql(head.last_seq.as_u64());
    let step = run_event::with_event_arrays(PipelineStatement::new(APPEND_EVENTS), &guess.events)
        .with_param(now.map(PostgresTimestamp));
    let step = whose(
        step,
        &continued
            .iter()
            .map(|(before, _)| *before)
            .collect::<Vec<_>>(),
    )
    .with_param(
        continued
            .iter()
            .map(|(before, _)| seq(before))
            .collect::<Vec<i64>>(),
    )
    .with_param(
        continued
            .iter()
            .map(|(before, _)| PostgresTimestamp(before.last_persisted_at))
            .collect::<Vec<PostgresTimestamp>>(),
    )
    .with_param(
        continued
            .iter()
            .map(|(_, after)| seq(after))
            .collect::<Vec<i64>>(),
    );
    whose(step, &begun)
        .with_param(begun.iter().map(|head| seq(head)).collect::<Vec<i64>>())
        .with_param(count_to_sql(guess.runs.len() as u64))
}

/// State for the store's rules: for appends with [`Duplicates::Optimistic`] they only need the
/// heads of runs.
struct CachedHeads<'a> {
    heads: &'a RunHeadCache,
    changed: BTreeMap<RunId, RunHead>,
}

impl StoredState for CachedHeads<'_> {
    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self
            .changed
            .get(run)
            .or_else(|| self.heads.get(run))
            .cloned())
    }

    fn journal_length(&mut self, _: ExecutionId) -> Result<u64, Error> {
        Ok(0)
    }

    fn stored_row(
        &mut self,
        _: &'static TableSchema,
        _: &RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        Ok(None)
    }

    fn row_by_unique(
        &mut self,
        _: &'static TableSchema,
        _: usize,
        _: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error> {
        Ok(None)
    }

    fn event_by_key(
        &mut self,
        _: &RunId,
        _: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error> {
        Ok(None)
    }

    fn has_event_id(&mut self, _: &RunEventId) -> Result<bool, Error> {
        Ok(false)
    }
}
