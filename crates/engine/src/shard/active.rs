//! An execution in memory, and how it stands in the store.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use onward_execution::{Execution, Guest, InFlight};
use onward_journal::{ExecutionId, PromiseId, Text, Timestamp};
use onward_store::tables::{Execution as Row, Message};

use super::task::{self, Queued};
use super::{Attempt, AttemptId, Caller, owner};

pub(super) use crate::standing::AT_ONCE;

/// Events that an execution may be ahead of the store.
const AHEAD_EVENTS_MAX: usize = 1_024;

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
    pub(super) committing: Pending,
    /// What the next one will.
    pub(super) pending: Pending,
    /// Why it cannot go on, found while it ran ahead.
    pub(super) is_stuck: Option<String>,
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

/// What is left of an execution whose memory is thrown away.
#[derive(Default)]
pub(super) struct Remains {
    /// How attempts ended that the store knows of: nobody else knows that.
    pub(super) ended: VecDeque<News>,
    /// Messages that are in the inbox still.
    pub(super) messages: Vec<i64>,
    /// Attempts that may be recorded and were not begun.
    pub(super) untouched: Vec<AttemptId>,
    /// Tasks that may be stored as claimed by a worker that does not hear of them.
    pub(super) unheard: Vec<(AttemptId, Text)>,
    /// Attempts that may not be recorded and were begun. What they come to is of no use.
    pub(super) ahead: BTreeSet<AttemptId>,
}

/// What a step leads to once it is durable.
#[derive(Default)]
pub(super) struct Pending {
    /// Attempts to perform.
    pub(super) attempts: Vec<Attempt>,
    /// Tasks for workers.
    pub(super) tasks: Vec<Queued>,
    /// Tasks that workers need not perform any more.
    pub(super) withdrawn: Vec<AttemptId>,
    /// Attempts that are performed before it is durable: they reach nobody.
    pub(super) ahead: BTreeSet<AttemptId>,
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
    /// Those of them that workers wait to hear of.
    pub(super) reported: Vec<AttemptId>,
    /// The sequences of the events that it records.
    pub(super) recorded: Range<u64>,
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
            committing: Pending::default(),
            pending: Pending::default(),
            is_stuck: None,
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

    /// Which attempt is under way there.
    pub(super) const fn attempt_of(&self, flight: InFlight) -> AttemptId {
        AttemptId { execution: self.id(), number: flight.number, attempt: flight.attempt }
    }

    /// Takes a task from workers, whether one has it or none.
    pub(super) fn withdraw(&mut self, flight: InFlight) {
        let withdrawn = self.attempt_of(flight);
        let queued = self.pending.tasks.len();
        self.pending.tasks.retain(|task| task::id(&task.row) != withdrawn);
        // What no commit has stored need not be taken back.
        if self.pending.tasks.len() == queued && !self.pending.withdrawn.contains(&withdrawn) {
            self.pending.withdrawn.push(withdrawn);
        }
    }

    /// Whether it can go on while a commit is under way. Not if that might need more than what is in memory, nor for long:
    /// all of it is lost in a crash.
    pub(super) fn may_run_ahead(&self) -> bool {
        let is_ready = self.guest.is_some() && self.is_stuck.is_none() && !self.execution.is_over();
        is_ready && !self.has_to_commit() && self.execution.untaken() < AHEAD_EVENTS_MAX
    }

    /// Whether something others wait for goes no further before it is committed.
    pub(super) fn has_to_commit(&self) -> bool {
        let Pending { attempts, tasks, withdrawn, children, consumed, sent, .. } = &self.pending;
        let is_asked = !attempts.is_empty() || !tasks.is_empty() || !withdrawn.is_empty();
        let is_awaited = is_asked || !children.is_empty() || !consumed.is_empty() || !sent.is_empty();
        is_awaited || self.execution.is_full()
    }

    /// What is known besides the store when all that is not durable is thrown away. What a commit starts may be recorded if
    /// its outcome `is_unknown`; else it is not.
    pub(super) fn into_remains(mut self, is_unknown: bool) -> Remains {
        let mut remains = Remains::default();
        // A commit without events is about attempts that were recorded before.
        if is_unknown || self.committing.recorded.is_empty() {
            remains.untouched.extend(self.committing.attempts.drain(..).map(|attempt| attempt.id));
        }
        if is_unknown {
            let claims = self.committing.tasks.iter().map(|task| (task::id(&task.row), task.row.claim.clone()));
            remains.unheard.extend(claims.filter_map(|(id, claim)| Some((id, claim?))));
        }
        let ahead: BTreeSet<AttemptId> = &self.committing.ahead | &self.pending.ahead;
        for pending in [self.committing, self.pending] {
            remains.messages.extend(pending.consumed.into_iter().filter_map(|(message, _)| message.message_id.0));
            remains.ended.extend(pending.ended.into_iter().map(|(id, result)| News::Ended(id, result)));
        }
        for news in self.news {
            match news {
                News::Ended(..) => remains.ended.push_back(news),
                News::Message(message, _) => remains.messages.extend(message.message_id.0),
            }
        }
        remains.ended.retain(|news| !matches!(news, News::Ended(id, _) if ahead.contains(id)));
        remains.ahead = ahead;
        remains
    }

    /// Whether something is known of its attempts that no commit carries yet: that one has begun, or ended.
    pub(super) fn has_unrecorded(&self) -> bool {
        let is_end = |news: &News| matches!(news, News::Ended(..));
        !self.pending.attempts.is_empty() || !self.pending.ended.is_empty() || self.news.iter().any(is_end)
    }

    /// Whether nothing is lost when it leaves memory.
    pub(super) fn is_idle(&self) -> bool {
        self.ticket.is_none() && self.news.is_empty() && !self.is_paused && self.standing().1 != AT_ONCE
    }
}
