//! The short way for a group that only appends run events: one statement, without a look before. It is written for what
//! is believed of the runs, and stores nothing at all if that is not true or if an event is there already.

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

/// What a group may weigh to go in one statement.
const OPTIMISTIC_BYTES_MAX: usize = 16 << 20;

/// Appends one event to a run that was left so.
const APPEND_EVENT: &str = include_str!("../../statements/append_event.sql");

/// Appends the first event of a run.
const BEGIN_RUN: &str = include_str!("../../statements/begin_run.sql");

/// Appends any number of events to any number of runs.
const APPEND_EVENTS: &str = include_str!("../../statements/append_events.sql");

/// What a quick try came to.
pub(super) enum OptimisticOutcome {
    /// Everything is stored.
    Committed(Vec<CommitReceipt>),
    /// The group cannot go this way.
    NotApplicable,
    /// Nothing is stored.
    RolledBack,
    /// Nobody knows, for this reason.
    Unknown(String),
}

/// What the rules make of a group, if what is believed of its runs is true. The stamps are the earliest possible.
struct OptimisticPlan<'a> {
    receipts: Vec<CommitReceipt>,
    events: Vec<PlannedEvent<'a>>,
    /// Each run as it is believed to be, if it is believed to be there at all, and as it will be.
    runs: Vec<(Option<RunHead>, RunHead)>,
}

impl PostgresWriter {
    /// Tries the short way, if there is one.
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
                    "what was believed of the runs is not true, or an event is there already"
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

    /// Sets the stamps that the database has given, and remembers where the runs end.
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

/// What the rules make of a group; nothing if they object or if there is nothing to append.
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

/// The stamp of what was stored; `None` if nothing was, because a run is not as believed.
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

/// The rules ask for the heads of runs only, when they append and are told to trust.
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
