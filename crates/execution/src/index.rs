//! Where things are in a journal: kept up to date event by event, so that a long journal costs as much per event as a short
//! one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onward_journal::{AwaitKind, Event, ExecutionId, JournalEvent, Name, Performer, Timestamp};

/// Places of a journal's events, by what the engine and the guest look for.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    execution: ExecutionId,
    /// The events that the guest caused, in order.
    pub(crate) script: Vec<u64>,
    /// By operation: where it began, and where its outcome is.
    operations: Vec<(u64, Option<u64>)>,
    /// By the sequence of an await: how it ended. One that is not in here is open.
    ends: BTreeMap<u64, End>,
    /// The await that has not ended.
    pub(crate) open: Option<u64>,
    /// Signals that were delivered and not consumed.
    pub(crate) buffered: BTreeMap<Name, VecDeque<u64>>,
    /// Invocations that no attempt was started of, in the order in which they were wanted.
    pub(crate) scheduled: BTreeSet<u32>,
    /// Attempts under way, by operation.
    pub(crate) in_flight: BTreeMap<u32, InFlight>,
    /// Timers that have not fired, retries that are due and attempts that may take no longer, by when.
    pub(crate) due: BTreeSet<(Timestamp, u32)>,
    retries: BTreeMap<u32, Timestamp>,
    timers: BTreeMap<u32, Timestamp>,
    /// How long an attempt may take, for invocations that say so.
    timeouts: BTreeMap<u32, u64>,
    /// When an attempt that others perform has taken too long.
    limits: BTreeMap<u32, Timestamp>,
    /// Where cancellation was asked for.
    pub(crate) cancel: Option<u64>,
    /// The await that it interrupted.
    pub(crate) interrupted: Option<u64>,
}

/// An attempt that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// The operation.
    pub number: u32,
    /// Which attempt of it.
    pub attempt: u32,
    /// Who performs it.
    pub performer: Performer,
}

/// How an await ended, and at which sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Resumed(u64),
    Interrupted(u64),
}

impl Index {
    pub(crate) fn new(execution: ExecutionId) -> Self {
        Self {
            execution,
            script: Vec::new(),
            operations: Vec::new(),
            ends: BTreeMap::new(),
            open: None,
            buffered: BTreeMap::new(),
            scheduled: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            due: BTreeSet::new(),
            retries: BTreeMap::new(),
            timers: BTreeMap::new(),
            timeouts: BTreeMap::new(),
            limits: BTreeMap::new(),
            cancel: None,
            interrupted: None,
        }
    }

    /// Where the outcome of an operation is, if it has one.
    pub(crate) fn outcome(&self, number: u32) -> Option<u64> {
        self.operations.get(number as usize)?.1
    }

    /// Where an operation began.
    pub(crate) fn allocation(&self, number: u32) -> Option<u64> {
        Some(self.operations.get(number as usize)?.0)
    }

    pub(crate) fn end_of(&self, awaiting: u64) -> Option<End> {
        self.ends.get(&awaiting).copied()
    }

    /// Takes in the next event.
    pub(crate) fn note(&mut self, recorded: &JournalEvent) {
        let sequence = recorded.sequence;
        let number = recorded.event.promise_ids().next().and_then(|id| id.number_in(self.execution));
        match (&recorded.event, number) {
            (Event::InvokeScheduled { retry_policy, .. }, Some(number)) => {
                self.allocate(sequence, None);
                self.scheduled.insert(number);
                if let Some(timeout_ms) = retry_policy.as_ref().and_then(|policy| policy.timeout_ms) {
                    self.timeouts.insert(number, timeout_ms);
                }
            }
            (Event::TimerScheduled { fire_at, .. }, Some(number)) => {
                self.allocate(sequence, None);
                self.timers.insert(number, *fire_at);
                self.due.insert((*fire_at, number));
            }
            (Event::JoinSetCreated { .. }, _) => self.allocate(sequence, None),
            (Event::RandomGenerated { .. } | Event::TimeRecorded { .. }, _) => self.allocate(sequence, Some(sequence)),
            (Event::SignalDelivered { signal_name, .. }, _) => {
                self.buffered.entry(signal_name.clone()).or_default().push_back(sequence);
            }
            (Event::SignalReceived { signal_name, .. }, Some(number)) => {
                if let Some(waiting) = self.buffered.get_mut(signal_name) {
                    waiting.pop_front();
                }
                self.receive(sequence, number);
            }
            (Event::ExecutionAwaiting { kind, .. }, _) => {
                if matches!(kind, AwaitKind::Signal(_)) {
                    self.operations.push((sequence, None));
                }
                self.script.push(sequence);
                self.open = Some(sequence);
            }
            (Event::JoinSetSubmitted { .. } | Event::JoinSetAwaited { .. }, _) => self.script.push(sequence),
            (Event::InvokeStarted { attempt, performer, .. }, Some(number)) => {
                self.fly(InFlight { number, attempt: *attempt, performer: *performer }, recorded.timestamp);
            }
            (Event::InvokeRetrying { retry_at, .. }, Some(number)) => {
                self.land(number);
                self.retries.insert(number, *retry_at);
                self.due.insert((*retry_at, number));
            }
            (Event::InvokeCompleted { .. }, Some(number)) => {
                self.land(number);
                self.leave_queue(number);
                self.settle(number, sequence);
            }
            (Event::TimerFired { .. }, Some(number)) => {
                if let Some(at) = self.timers.remove(&number) {
                    self.due.remove(&(at, number));
                }
                self.settle(number, sequence);
            }
            (Event::ExecutionResumed, _) => self.close(End::Resumed(sequence)),
            (Event::CancelRequested { .. }, _) => {
                self.cancel = Some(sequence);
                self.interrupted = self.open;
                self.close(End::Interrupted(sequence));
            }
            _ => {}
        }
    }

    /// An attempt begins. Who performs it elsewhere is not waited for longer than it may take.
    fn fly(&mut self, flight: InFlight, at: Timestamp) {
        let number = flight.number;
        self.scheduled.remove(&number);
        self.leave_queue(number);
        self.in_flight.insert(number, flight);
        if let Some(timeout_ms) = self.timeouts.get(&number)
            && !flight.performer.is_owner()
        {
            let limit = at.plus_ms(*timeout_ms);
            self.limits.insert(number, limit);
            self.due.insert((limit, number));
        }
    }

    fn allocate(&mut self, sequence: u64, outcome: Option<u64>) {
        self.operations.push((sequence, outcome));
        self.script.push(sequence);
    }

    /// A signal that nobody waited for is an operation of its own; one that was awaited ends the wait's.
    fn receive(&mut self, sequence: u64, number: u32) {
        if (number as usize) < self.operations.len() {
            self.settle(number, sequence);
        } else {
            self.allocate(sequence, Some(sequence));
        }
    }

    fn settle(&mut self, number: u32, sequence: u64) {
        if let Some((_, outcome)) = self.operations.get_mut(number as usize) {
            *outcome = Some(sequence);
        }
    }

    fn land(&mut self, number: u32) {
        self.in_flight.remove(&number);
        if let Some(at) = self.limits.remove(&number) {
            self.due.remove(&(at, number));
        }
    }

    fn leave_queue(&mut self, number: u32) {
        if let Some(at) = self.retries.remove(&number) {
            self.due.remove(&(at, number));
        }
    }

    fn close(&mut self, end: End) {
        if let Some(awaiting) = self.open.take() {
            self.ends.insert(awaiting, end);
        }
    }

    /// Whether what is due there is a retry.
    pub(crate) fn is_retry(&self, number: u32) -> bool {
        self.retries.contains_key(&number)
    }

    /// Whether what is due there is a timer.
    pub(crate) fn is_timer(&self, number: u32) -> bool {
        self.timers.contains_key(&number)
    }

    /// Attempts of others that have taken too long at `now`.
    pub(crate) fn overdue(&self, now: Timestamp) -> impl Iterator<Item = InFlight> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.filter(|(_, number)| self.limits.contains_key(number))
            .filter_map(|(_, number)| self.in_flight.get(number).copied())
    }
}
