//! An execution in memory, and how it stands in the store.

use std::collections::VecDeque;

use onward_execution::{Execution, Guest};
use onward_journal::{ExecutionId, PromiseId, Text, Timestamp};
use onward_store::tables::{Execution as Row, Message};

use super::{Attempt, AttemptId, Caller, owner};

pub(super) use crate::standing::AT_ONCE;

/// The version of a row that is not stored yet.
pub(super) const UNSTORED: u64 = 0;

pub(super) struct Active {
    pub(super) row: Row,
    pub(super) owner: Text,
    pub(super) version: u64,
    pub(super) execution: Execution,
    /// Absent when it was put aside: it is replayed when it is needed.
    pub(super) guest: Option<Box<dyn Guest>>,
    /// The commit under way.
    pub(super) ticket: Option<u64>,
    /// Whether the guest has used up its slice of time.
    pub(super) is_paused: bool,
    /// Whether it waits for its turn, or for room.
    pub(super) is_queued: bool,
    /// What happened and is not recorded yet.
    pub(super) news: VecDeque<News>,
    /// What the commit under way carries, and what follows it.
    pub(super) pending: Pending,
    /// When it was last touched, for whoever puts guests aside.
    pub(super) touched: Timestamp,
    /// The deadline that its shard watches.
    pub(super) watched: Option<Timestamp>,
}

/// Something that happened to an execution.
#[derive(Debug, Clone)]
pub(super) enum News {
    Ended(AttemptId, onward_journal::InvokeResult),
    Message(Box<Message>, u64),
}

/// What a step leads to once it is durable.
#[derive(Default)]
pub(super) struct Pending {
    /// Attempts to perform.
    pub(super) attempts: Vec<Attempt>,
    /// Attempts that nobody waits for any more.
    pub(super) abandoned: Vec<AttemptId>,
    /// Executions that were started.
    pub(super) children: Vec<Active>,
    /// Messages that were consumed.
    pub(super) consumed: Vec<(Message, u64)>,
    /// Messages that are sent.
    pub(super) sent: Vec<Message>,
    /// Attempts whose end it records: should it fail, nobody else knows of them.
    pub(super) ended: Vec<(AttemptId, onward_journal::InvokeResult)>,
    /// Whether it changes the row.
    pub(super) changes_row: bool,
}

impl Active {
    pub(super) fn new(row: Row, version: u64, execution: Execution, now: Timestamp) -> Self {
        Self {
            owner: owner(&row.tenant_id, &row.project_id, &row.environment_id),
            row,
            version,
            execution,
            guest: None,
            ticket: None,
            is_paused: false,
            is_queued: false,
            news: VecDeque::new(),
            pending: Pending::default(),
            touched: now,
            watched: None,
        }
    }

    pub(super) fn caller(&self) -> Caller<'_> {
        Caller { component: self.row.component_digest, owner: &self.owner }
    }

    pub(super) const fn id(&self) -> ExecutionId {
        self.execution.id()
    }

    /// How the row should read, as far as it follows from the journal: the state for people, and when to wake it.
    pub(super) fn standing(&self) -> (&'static str, Timestamp) {
        crate::standing::standing(&self.execution)
    }

    /// Whether the end of this attempt is known and not recorded yet.
    pub(super) fn has_ended(&self, id: AttemptId) -> bool {
        self.news.iter().any(|news| matches!(news, News::Ended(ended, _) if *ended == id))
    }

    /// The operation of another execution that this one performs, and as which attempt.
    pub(super) fn parent(&self) -> Option<(PromiseId, u32)> {
        super::parent(self.execution.journal())
    }

    /// Whether nothing is lost when it leaves memory.
    pub(super) fn is_idle(&self) -> bool {
        self.ticket.is_none() && self.news.is_empty() && !self.is_paused && self.standing().1 != AT_ONCE
    }
}
