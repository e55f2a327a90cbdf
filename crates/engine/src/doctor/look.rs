//! Reads what judging an execution takes: its journal, and what it refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use onward_execution::{Execution, InFlight, Limits};
use onward_journal::{ComponentDigest, Event, ExecutionId, Journal, Performer, Timestamp};
use onward_store::tables::{Component, Execution as Row, Task};
use onward_store::{Error, Field as _, Key, Records as _, Shard, Store};

use super::judge::Flaw;
use super::{Code, row};
use crate::client::{is_over, read_journal, shard_of};
use crate::explain::{parent, successor};
use crate::inbox;
use crate::shard::{AttemptId, message_event, task};

/// Successors that are followed; a longer line of them is taken for alive.
const SUCCESSORS_MAX: usize = 10_000;

/// An execution as it was read.
pub(super) struct Seen {
    pub(super) row: Row,
    version: u64,
    pub(super) events: u64,
    /// When its last event was recorded.
    pub(super) last: Option<Timestamp>,
    /// What its journal amounts to; what is wrong with the journal if it amounts to nothing.
    pub(super) execution: Result<Execution, Flaw>,
    pub(super) around: Around,
}

impl Seen {
    /// Whether nothing has happened between the two looks.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.version, self.events) == (other.version, other.events)
    }
}

/// What an execution refers to.
#[derive(Default)]
pub(super) struct Around {
    pub(super) has_component: bool,
    /// Where it belongs; absent when whoever could tell is gone.
    pub(super) shard: Option<Shard>,
    pub(super) children: BTreeMap<ExecutionId, Fate>,
    /// Operations that a worker is to perform: whether there is a task, or its result is on its way.
    pub(super) tasks: BTreeMap<u32, bool>,
    /// Who took its place, and whether that one is there.
    pub(super) successor: Option<(ExecutionId, bool)>,
}

/// What became of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It, or whoever took its place, is not over.
    Alive,
    /// It is over, and its result is on its way.
    Sent,
    /// It is over, and its result is nowhere.
    Lost(ExecutionId),
    /// It is not there.
    Absent(ExecutionId),
}

/// Whoever looks: remembers which components there are.
pub(super) struct Looker<'a> {
    pub(super) store: &'a dyn Store,
    components: Mutex<BTreeSet<ComponentDigest>>,
}

impl<'a> Looker<'a> {
    pub(super) const fn new(store: &'a dyn Store) -> Self {
        Self { store, components: Mutex::new(BTreeSet::new()) }
    }

    /// Reads an execution whose row was read already.
    pub(super) async fn look(&self, row: Row, version: u64) -> Result<Seen, Error> {
        let id = row.execution_id;
        let unusable = |code, message| Flaw { code, message };
        let events = match read_journal(self.store, id).await {
            Ok(events) => events,
            Err(Error::Corrupt(what)) => {
                let execution = Err(unusable(Code::JournalUnreadable, format!("its journal cannot be read: {what}")));
                return Ok(Seen { row, version, events: 0, last: None, execution, around: Around::default() });
            }
            Err(error) => return Err(error),
        };
        let (count, last) = (events.len() as u64, events.last().map(|last| last.timestamp));
        let execution = Journal::recover(id, events)
            .map(|journal| Execution::recover(journal, Limits::default()))
            .map_err(|violation| unusable(Code::JournalInvalid, format!("its journal is not valid: {violation}")));
        let around = match &execution {
            Ok(execution) => self.around(&row, execution).await?,
            Err(_) => Around::default(),
        };
        Ok(Seen { row, version, events: count, last, execution, around })
    }

    async fn around(&self, row: &Row, execution: &Execution) -> Result<Around, Error> {
        let mut children = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        for flight in execution.in_flight().filter(|_| !execution.is_over()) {
            match flight.performer {
                Performer::Child(child) => {
                    let fate = self.fate(row, flight.number, flight.attempt, child).await?;
                    children.insert(child, fate);
                }
                Performer::Worker => drop(tasks.insert(flight.number, self.is_task_there(row, flight).await?)),
                Performer::Owner => {}
            }
        }
        let successor = match successor(execution.journal()) {
            Some(next) => Some((next, self::row(self.store, next).await?.is_some())),
            None => None,
        };
        let shard = self.shard(row, execution.journal()).await?;
        let has_component = self.has_component(row.component_digest).await?;
        Ok(Around { has_component, shard, children, tasks, successor })
    }

    async fn has_component(&self, digest: ComponentDigest) -> Result<bool, Error> {
        if self.components.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest) {
            return Ok(true);
        }
        let stored: Option<(Component, u64)> = self.store.get(Key(vec![digest.to_value()])).await?;
        if stored.is_some() {
            self.components.lock().unwrap_or_else(PoisonError::into_inner).insert(digest);
        }
        Ok(stored.is_some())
    }

    /// A child is where its parent is, a successor where its predecessor was; everybody else where the id says.
    async fn shard(&self, row: &Row, journal: &Journal) -> Result<Option<Shard>, Error> {
        let before = match (parent(journal), predecessor(row, journal)) {
            (Some(parent), _) => parent,
            (None, Some(predecessor)) => predecessor,
            (None, None) => return Ok(Some(shard_of(&row.execution_id))),
        };
        Ok(self::row(self.store, before).await?.map(|before| before.shard))
    }

    /// What became of the child that performs attempt `attempt` of an operation.
    async fn fate(&self, parent: &Row, number: u32, attempt: u32, child: ExecutionId) -> Result<Fate, Error> {
        let mut child = child;
        for _ in 0..SUCCESSORS_MAX {
            let Some(row) = row(self.store, child).await? else { return Ok(Fate::Absent(child)) };
            if !is_over(&row) {
                return Ok(Fate::Alive);
            }
            match self.continued_as(child).await? {
                Some(next) => child = next,
                None => {
                    let is_sent = self.is_result_sent(parent, number, attempt).await?;
                    return Ok(if is_sent { Fate::Sent } else { Fate::Lost(child) });
                }
            }
        }
        Ok(Fate::Alive)
    }

    /// A journal that cannot be read is a finding of its own.
    async fn continued_as(&self, id: ExecutionId) -> Result<Option<ExecutionId>, Error> {
        match read_journal(self.store, id).await {
            Ok(events) => Ok(events.last().and_then(|last| last.event.successor())),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An execution, for whoever has a task of it; nothing if its journal is a finding of its own.
    pub(super) async fn execution(&self, id: ExecutionId) -> Result<Option<Execution>, Error> {
        let events = match read_journal(self.store, id).await {
            Ok(events) => events,
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let journal = Journal::recover(id, events).ok();
        Ok(journal.map(|journal| Execution::recover(journal, Limits::default())))
    }

    async fn is_task_there(&self, row: &Row, flight: InFlight) -> Result<bool, Error> {
        let InFlight { number, attempt, .. } = flight;
        let id = AttemptId { execution: row.execution_id, number, attempt };
        let stored: Option<(Task, u64)> = self.store.get(task::key(id)).await?;
        Ok(stored.is_some() || self.is_result_sent(row, number, attempt).await?)
    }

    async fn is_result_sent(&self, parent: &Row, number: u32, attempt: u32) -> Result<bool, Error> {
        let id = parent.execution_id;
        let messages = inbox::messages_to(self.store, parent.shard, id).await?;
        Ok(messages.iter().filter_map(|message| message_event(message).ok()).any(|event| match event {
            Event::InvokeCompleted { promise_id, attempt: of, .. } => {
                promise_id.number_in(id) == Some(number) && of == attempt
            }
            _ => false,
        }))
    }
}

/// The execution whose place this one took: nobody else starts without a key in the row and with one in the journal.
fn predecessor(row: &Row, journal: &Journal) -> Option<ExecutionId> {
    match &journal.events().first()?.event {
        Event::ExecutionStarted { idempotency_key: Some(key), .. } if row.start_key.is_none() => key.parse().ok(),
        _ => None,
    }
}
