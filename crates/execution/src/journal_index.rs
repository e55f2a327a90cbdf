//! An index over a journal, updated event by event, so that the cost per event does not depend on
//! the length of the journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onward_base::{BoundedName, Timestamp};
use onward_journal::{AwaitKind, Event, ExecutionId, InvokePerformer, JournalEvent};

/// The sequence numbers of a journal's events, by what the engine and the guest look up.
#[derive(Debug, Clone)]
pub(crate) struct JournalIndex {
    execution: ExecutionId,
    /// The sequence numbers of the events that the guest caused, in order.
    pub(crate) guest_events: Vec<u64>,
    /// By operation number: the sequence numbers of the event that began it and of its outcome.
    operations: Vec<(u64, Option<u64>)>,
    /// By the sequence number of an await: how it ended. An await that is not in the map is open.
    await_resolutions: BTreeMap<u64, AwaitResolution>,
    /// The sequence number of the await that has not ended.
    pub(crate) open_await: Option<u64>,
    /// By name: the sequence numbers of the signals that were delivered and not consumed.
    pub(crate) buffered_signals: BTreeMap<BoundedName, VecDeque<u64>>,
    /// The number and the payload of those signals.
    pub(crate) signal_backlog: SignalBacklog,
    /// Invocations of which no attempt has started, in the order in which they were scheduled.
    pub(crate) scheduled_invokes: BTreeSet<u32>,
    /// The attempts in flight, by operation number.
    pub(crate) in_flight: BTreeMap<u32, AttemptInFlight>,
    /// Timers that have not fired, pending retries and deadlines of children, ordered by time.
    pub(crate) due_times: BTreeSet<(Timestamp, u32)>,
    retry_times: BTreeMap<u32, Timestamp>,
    timer_deadlines: BTreeMap<u32, Timestamp>,
    /// The attempt timeouts of invocations whose retry policy sets one, by operation number.
    attempt_timeouts_ms: BTreeMap<u32, u64>,
    /// The deadlines of attempts that child executions perform, by operation number.
    attempt_deadlines: BTreeMap<u32, Timestamp>,
    /// The sequence number of the cancellation request.
    pub(crate) cancel_requested_at: Option<u64>,
    /// The sequence number of the await that the cancellation interrupted.
    pub(crate) interrupted_await: Option<u64>,
}

/// Signals that were delivered to an execution and that it has not consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SignalBacklog {
    /// Number of the signals.
    pub count: u64,
    /// Size of their payloads in bytes.
    pub bytes: u64,
}

/// An attempt that has started and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptInFlight {
    /// The number of the operation.
    pub number: u32,
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// The party that performs the attempt.
    pub performer: InvokePerformer,
}

/// How an await ended, and at which sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitResolution {
    Resumed(u64),
    Interrupted(u64),
}

impl JournalIndex {
    pub(crate) fn new(execution: ExecutionId) -> Self {
        Self {
            execution,
            guest_events: Vec::new(),
            operations: Vec::new(),
            await_resolutions: BTreeMap::new(),
            open_await: None,
            buffered_signals: BTreeMap::new(),
            signal_backlog: SignalBacklog::default(),
            scheduled_invokes: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            due_times: BTreeSet::new(),
            retry_times: BTreeMap::new(),
            timer_deadlines: BTreeMap::new(),
            attempt_timeouts_ms: BTreeMap::new(),
            attempt_deadlines: BTreeMap::new(),
            cancel_requested_at: None,
            interrupted_await: None,
        }
    }

    /// Returns the sequence number of an operation's outcome; `None` if it has none yet.
    pub(crate) fn outcome_sequence(&self, number: u32) -> Option<u64> {
        self.operations.get(number as usize)?.1
    }

    /// Returns the sequence number of the event that began an operation.
    pub(crate) fn allocation_sequence(&self, number: u32) -> Option<u64> {
        Some(self.operations.get(number as usize)?.0)
    }

    pub(crate) fn await_resolution(&self, awaiting: u64) -> Option<AwaitResolution> {
        self.await_resolutions.get(&awaiting).copied()
    }

    /// Adds the next event of the journal to the index.
    #[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
    pub(crate) fn index_event(&mut self, recorded: &JournalEvent) {
        let sequence = recorded.sequence;
        let number = recorded
            .event
            .promise_ids()
            .next()
            .and_then(|id| id.child_number_in(self.execution));
        match (&recorded.event, number) {
            (Event::InvokeScheduled { retry_policy, .. }, Some(number)) => {
                self.allocate_operation(sequence, None);
                self.scheduled_invokes.insert(number);
                if let Some(timeout_ms) = retry_policy.as_ref().and_then(|policy| policy.timeout_ms)
                {
                    self.attempt_timeouts_ms.insert(number, timeout_ms);
                }
            }
            (Event::TimerScheduled { fire_at, .. }, Some(number)) => {
                self.allocate_operation(sequence, None);
                self.timer_deadlines.insert(number, *fire_at);
                self.due_times.insert((*fire_at, number));
            }
            (Event::JoinSetCreated { .. }, _) => self.allocate_operation(sequence, None),
            (Event::RandomGenerated { .. } | Event::TimeRecorded { .. }, _) => {
                self.allocate_operation(sequence, Some(sequence))
            }
            (
                Event::SignalDelivered {
                    signal_name,
                    payload,
                    ..
                },
                _,
            ) => {
                self.signal_backlog.count += 1;
                self.signal_backlog.bytes += payload.as_str().len() as u64;
                self.buffered_signals
                    .entry(signal_name.clone())
                    .or_default()
                    .push_back(sequence);
            }
            (
                Event::SignalReceived {
                    signal_name,
                    payload,
                    ..
                },
                Some(number),
            ) => {
                let backlog = &mut self.signal_backlog;
                backlog.count = backlog.count.saturating_sub(1);
                let bytes = payload.as_str().len() as u64;
                backlog.bytes = backlog.bytes.saturating_sub(bytes);
                if let Some(waiting) = self.buffered_signals.get_mut(signal_name) {
                    waiting.pop_front();
                }
                self.receive_signal(sequence, number);
            }
            (Event::ExecutionAwaiting { kind, .. }, _) => {
                if matches!(kind, AwaitKind::Signal(_)) {
                    self.operations.push((sequence, None));
                }
                self.guest_events.push(sequence);
                self.open_await = Some(sequence);
            }
            (Event::JoinSetSubmitted { .. } | Event::JoinSetAwaited { .. }, _) => {
                self.guest_events.push(sequence)
            }
            (
                Event::InvokeStarted {
                    attempt, performer, ..
                },
                Some(number),
            ) => {
                self.begin_attempt(
                    AttemptInFlight {
                        number,
                        attempt: *attempt,
                        performer: *performer,
                    },
                    recorded.timestamp,
                );
            }
            (Event::InvokeRetrying { retry_at, .. }, Some(number)) => {
                self.finish_attempt(number);
                self.retry_times.insert(number, *retry_at);
                self.due_times.insert((*retry_at, number));
            }
            (Event::InvokeCompleted { .. }, Some(number)) => {
                self.finish_attempt(number);
                self.remove_retry(number);
                self.settle_operation(number, sequence);
            }
            (Event::TimerFired { .. }, Some(number)) => {
                if let Some(at) = self.timer_deadlines.remove(&number) {
                    self.due_times.remove(&(at, number));
                }
                self.settle_operation(number, sequence);
            }
            (Event::ExecutionResumed, _) => self.close_await(AwaitResolution::Resumed(sequence)),
            (Event::CancelRequested { .. }, _) => {
                self.cancel_requested_at = Some(sequence);
                self.interrupted_await = self.open_await;
                self.close_await(AwaitResolution::Interrupted(sequence));
            }
            _ => {}
        }
    }

    /// Adds an attempt in flight. If a child execution performs it, the timeout of the retry policy
    /// sets its deadline. The timeout of a worker begins with its claim, which is not recorded
    /// here.
    fn begin_attempt(&mut self, flight: AttemptInFlight, at: Timestamp) {
        let number = flight.number;
        self.scheduled_invokes.remove(&number);
        self.remove_retry(number);
        self.in_flight.insert(number, flight);
        if let Some(timeout_ms) = self.attempt_timeouts_ms.get(&number)
            && flight.performer.child_execution().is_some()
        {
            let limit = at.plus_ms(*timeout_ms);
            self.attempt_deadlines.insert(number, limit);
            self.due_times.insert((limit, number));
        }
    }

    fn allocate_operation(&mut self, sequence: u64, outcome: Option<u64>) {
        self.operations.push((sequence, outcome));
        self.guest_events.push(sequence);
    }

    /// Adds a received signal. A signal that was consumed without waiting is an operation of its
    /// own; one that was awaited settles the operation of the await.
    fn receive_signal(&mut self, sequence: u64, number: u32) {
        if (number as usize) < self.operations.len() {
            self.settle_operation(number, sequence);
        } else {
            self.allocate_operation(sequence, Some(sequence));
        }
    }

    fn settle_operation(&mut self, number: u32, sequence: u64) {
        if let Some((_, outcome)) = self.operations.get_mut(number as usize) {
            *outcome = Some(sequence);
        }
    }

    fn finish_attempt(&mut self, number: u32) {
        self.in_flight.remove(&number);
        if let Some(at) = self.attempt_deadlines.remove(&number) {
            self.due_times.remove(&(at, number));
        }
    }

    fn remove_retry(&mut self, number: u32) {
        if let Some(at) = self.retry_times.remove(&number) {
            self.due_times.remove(&(at, number));
        }
    }

    fn close_await(&mut self, end: AwaitResolution) {
        if let Some(awaiting) = self.open_await.take() {
            self.await_resolutions.insert(awaiting, end);
        }
    }

    /// Returns whether the due time of the operation is that of a retry.
    pub(crate) fn is_retry(&self, number: u32) -> bool {
        self.retry_times.contains_key(&number)
    }

    /// Returns whether the due time of the operation is that of a timer.
    pub(crate) fn is_timer(&self, number: u32) -> bool {
        self.timer_deadlines.contains_key(&number)
    }

    /// Returns the attempts of child executions whose deadline has passed at `now`.
    pub(crate) fn overdue_attempts(&self, now: Timestamp) -> impl Iterator<Item = AttemptInFlight> {
        let due = self.due_times.iter().take_while(move |(at, _)| *at <= now);
        due.filter(|(_, number)| self.attempt_deadlines.contains_key(number))
            .filter_map(|(_, number)| self.in_flight.get(number).copied())
    }
}
