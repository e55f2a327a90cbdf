//! Reads what is needed to check an execution: its journal, and the rows it refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use onward_base::Timestamp;
use onward_execution::{AttemptInFlight, Execution, ExecutionLimits};
use onward_journal::{ComponentDigest, Event, ExecutionId, InvokePerformer, Journal};
use onward_store::tables::{ComponentRow, ExecutionRow as Row, TaskRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, ShardId, Store};

use super::checks::DoctorIssue;
use super::{FindingCode, read_execution_row};
use crate::explain::{parent_execution, successor_execution};
use onward_engine::client::{is_execution_over, read_journal, shard_of};
use onward_engine::inbox;
use onward_engine::shard::{AttemptId, decode_message, task_row};

/// Maximum number of successors that are followed; the last execution of a longer chain is assumed
/// to be running.
const SUCCESSORS_MAX: usize = 10_000;

/// An execution as read from the store.
pub(super) struct InspectedExecution {
    pub(super) row: Row,
    version: u64,
    pub(super) events: u64,
    /// Timestamp of the last event.
    pub(super) last_event_at: Option<Timestamp>,
    /// The execution recovered from its journal, or the issue that makes the journal unusable.
    pub(super) execution: Result<Execution, DoctorIssue>,
    pub(super) references: ExecutionReferences,
}

impl InspectedExecution {
    /// Whether the row version and the number of events are the same in both reads.
    pub(super) fn is_unchanged_since(&self, other: &Self) -> bool {
        (self.version, self.events) == (other.version, other.events)
    }
}

/// The stored objects that an execution refers to.
#[derive(Default)]
pub(super) struct ExecutionReferences {
    pub(super) has_component: bool,
    /// The shard it belongs in; `None` if the parent or predecessor that determines it does not
    /// exist.
    pub(super) expected_shard: Option<ShardId>,
    pub(super) children: BTreeMap<ExecutionId, ChildStatus>,
    /// Operations in flight for workers, by number: whether a task row or an undelivered result
    /// exists.
    pub(super) tasks: BTreeMap<u32, bool>,
    /// The execution it continued as, and whether the row of that one exists.
    pub(super) successor: Option<(ExecutionId, bool)>,
}

/// State of a child execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildStatus {
    /// The child, or the execution it continued as, has not ended.
    Running,
    /// The child has ended, and its result is in the inbox of the parent.
    ResultSent,
    /// The child has ended, and its result is neither recorded nor in the inbox.
    ResultLost(ExecutionId),
    /// The child, or an execution it continued as, does not exist.
    Missing(ExecutionId),
}

/// Reads executions for the checks; caches which components exist.
pub(super) struct ExecutionInspector<'a> {
    pub(super) store: &'a dyn Store,
    components: Mutex<BTreeSet<ComponentDigest>>,
}

impl<'a> ExecutionInspector<'a> {
    pub(super) const fn new(store: &'a dyn Store) -> Self {
        Self {
            store,
            components: Mutex::new(BTreeSet::new()),
        }
    }

    /// Reads the journal and the references of an execution whose row was already read.
    pub(super) async fn inspect_row(
        &self,
        row: Row,
        version: u64,
    ) -> Result<InspectedExecution, Error> {
        let id = row.execution_id;
        let unusable = |code, message| DoctorIssue { code, message };
        let events = match read_journal(self.store, id).await {
            Ok(events) => events,
            Err(Error::Corrupt(what)) => {
                let execution = Err(unusable(
                    FindingCode::JournalUnreadable,
                    format!("its journal cannot be read: {what}"),
                ));
                return Ok(InspectedExecution {
                    row,
                    version,
                    events: 0,
                    last_event_at: None,
                    execution,
                    references: ExecutionReferences::default(),
                });
            }
            Err(error) => return Err(error),
        };
        let (count, last) = (
            events.len() as u64,
            events.last().map(|last| last.timestamp),
        );
        let execution = Journal::recover(id, events)
            .map(|journal| Execution::recover(journal, ExecutionLimits::default()))
            .map_err(|violation| {
                unusable(
                    FindingCode::JournalInvalid,
                    format!("its journal is not valid: {violation}"),
                )
            });
        let references = match &execution {
            Ok(execution) => self.read_references(&row, execution).await?,
            Err(_) => ExecutionReferences::default(),
        };
        Ok(InspectedExecution {
            row,
            version,
            events: count,
            last_event_at: last,
            execution,
            references,
        })
    }

    async fn read_references(
        &self,
        row: &Row,
        execution: &Execution,
    ) -> Result<ExecutionReferences, Error> {
        let mut children = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        for flight in execution
            .attempts_in_flight()
            .filter(|_| !execution.is_terminal())
        {
            match flight.performer {
                InvokePerformer::Child(child) => {
                    let status = self
                        .child_status(row, flight.number, flight.attempt, child)
                        .await?;
                    children.insert(child, status);
                }
                InvokePerformer::Worker => {
                    tasks.insert(flight.number, self.has_task_or_result(row, flight).await?);
                }
                InvokePerformer::Owner => {}
            }
        }
        let successor = match successor_execution(execution.journal()) {
            Some(next) => Some((next, read_execution_row(self.store, next).await?.is_some())),
            None => None,
        };
        let shard = self.expected_shard(row, execution.journal()).await?;
        let has_component = self.has_component(row.component_digest).await?;
        Ok(ExecutionReferences {
            has_component,
            expected_shard: shard,
            children,
            tasks,
            successor,
        })
    }

    async fn has_component(&self, digest: ComponentDigest) -> Result<bool, Error> {
        if self
            .components
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&digest)
        {
            return Ok(true);
        }
        let stored: Option<(ComponentRow, u64)> = self
            .store
            .read_record(RowKey(vec![digest.to_value()]))
            .await?;
        if stored.is_some() {
            self.components
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(digest);
        }
        Ok(stored.is_some())
    }

    /// Returns the shard an execution belongs in: a child in that of its parent, a successor in
    /// that of its predecessor, every other one in the shard derived from its id.
    async fn expected_shard(&self, row: &Row, journal: &Journal) -> Result<Option<ShardId>, Error> {
        let before = match (
            parent_execution(journal),
            predecessor_execution(row, journal),
        ) {
            (Some(parent), _) => parent,
            (None, Some(predecessor)) => predecessor,
            (None, None) => return Ok(Some(shard_of(&row.execution_id))),
        };
        Ok(read_execution_row(self.store, before)
            .await?
            .map(|before| before.shard))
    }

    /// Determines the state of the child that performs attempt `attempt` of operation `number`.
    async fn child_status(
        &self,
        parent: &Row,
        number: u32,
        attempt: u32,
        child: ExecutionId,
    ) -> Result<ChildStatus, Error> {
        let mut child = child;
        for _ in 0..SUCCESSORS_MAX {
            let Some(row) = read_execution_row(self.store, child).await? else {
                return Ok(ChildStatus::Missing(child));
            };
            if !is_execution_over(&row) {
                return Ok(ChildStatus::Running);
            }
            match self.continued_as(child).await? {
                Some(next) => child = next,
                None => {
                    let is_sent = self.is_result_sent(parent, number, attempt).await?;
                    return Ok(if is_sent {
                        ChildStatus::ResultSent
                    } else {
                        ChildStatus::ResultLost(child)
                    });
                }
            }
        }
        Ok(ChildStatus::Running)
    }

    /// Returns the successor of an execution; `None` also if the journal is unreadable, which is
    /// reported as a separate finding.
    async fn continued_as(&self, id: ExecutionId) -> Result<Option<ExecutionId>, Error> {
        match read_journal(self.store, id).await {
            Ok(events) => Ok(events.last().and_then(|last| last.event.continued_as())),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Recovers the execution of a task; `None` if its journal is unusable, which is reported as a
    /// separate finding.
    pub(super) async fn recover_execution(
        &self,
        id: ExecutionId,
    ) -> Result<Option<Execution>, Error> {
        let events = match read_journal(self.store, id).await {
            Ok(events) => events,
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let journal = Journal::recover(id, events).ok();
        Ok(journal.map(|journal| Execution::recover(journal, ExecutionLimits::default())))
    }

    async fn has_task_or_result(&self, row: &Row, flight: AttemptInFlight) -> Result<bool, Error> {
        let AttemptInFlight {
            number, attempt, ..
        } = flight;
        let id = AttemptId {
            execution: row.execution_id,
            number,
            attempt,
        };
        let stored: Option<(TaskRow, u64)> = self.store.read_record(task_row::task_key(id)).await?;
        Ok(stored.is_some() || self.is_result_sent(row, number, attempt).await?)
    }

    async fn is_result_sent(&self, parent: &Row, number: u32, attempt: u32) -> Result<bool, Error> {
        let id = parent.execution_id;
        let messages = inbox::messages_to(self.store, parent.shard, id).await?;
        Ok(messages
            .iter()
            .filter_map(|message| decode_message(message).ok())
            .any(|event| match event {
                Event::InvokeCompleted {
                    promise_id,
                    attempt: of,
                    ..
                } => promise_id.child_number_in(id) == Some(number) && of == attempt,
                _ => false,
            }))
    }
}

/// The execution that continued as this one: only a successor has an idempotency key in its journal
/// and none in its row.
fn predecessor_execution(row: &Row, journal: &Journal) -> Option<ExecutionId> {
    match &journal.events().first()?.event {
        Event::ExecutionStarted {
            idempotency_key: Some(key),
            ..
        } if row.start_key.is_none() => key.parse().ok(),
        _ => None,
    }
}
