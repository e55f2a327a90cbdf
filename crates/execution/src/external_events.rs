//! External events of an execution: attempts that start and end, time that passes, signals and
//! cancellation.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitKind, Event, ExecutionError, ExecutionPhase, InvokePerformer, InvokeResult,
    JournalCommand, RuleViolation,
};

use crate::{AttemptInFlight, Execution, ExecutionEnvironment, SignalBacklog};

impl Execution {
    /// Returns the operations whose next attempt may start at `now`: new ones in the order in which
    /// they were scheduled, then retries that are due.
    pub fn startable_operations(&self, now: Timestamp) -> Vec<u32> {
        let due = self
            .index
            .due_times
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, number)| *number);
        let retries = due.filter(|number| self.index.is_retry(*number));
        self.index
            .scheduled_invokes
            .iter()
            .copied()
            .chain(retries)
            .collect()
    }

    /// Returns whether an invocation is scheduled of which no attempt has started.
    pub fn has_scheduled_invokes(&self) -> bool {
        !self.index.scheduled_invokes.is_empty()
    }

    /// Starts the next attempt of an operation, and returns the number of the attempt.
    pub fn start_attempt(
        &mut self,
        number: u32,
        performer: InvokePerformer,
        now: Timestamp,
    ) -> Result<u32, RuleViolation> {
        self.record_command(
            JournalCommand::StartAttempt {
                promise: self.promise_id(number),
                performer,
            },
            now,
        )?;
        Ok(self
            .index
            .in_flight
            .get(&number)
            .map_or(0, |flight| flight.attempt))
    }

    /// Returns the number of the next attempt of an operation; 1 is the first.
    pub fn next_attempt(&self, number: u32) -> u32 {
        self.journal
            .journal_state()
            .invoke_state(&self.promise_id(number))
            .map_or(0, |invoke| invoke.attempt)
            + 1
    }

    /// Returns all attempts in flight, ordered by operation.
    pub fn attempts_in_flight(&self) -> impl Iterator<Item = AttemptInFlight> {
        self.index.in_flight.values().copied()
    }

    /// Returns the attempt of an operation that is in flight; `None` if there is none.
    pub fn attempt_in_flight(&self, number: u32) -> Option<AttemptInFlight> {
        self.index.in_flight.get(&number).copied()
    }

    /// Returns the event that began an operation, which contains its function and input if it is an
    /// invocation.
    pub fn invocation_event(&self, number: u32) -> Option<&Event> {
        self.event_at(self.index.allocation_sequence(number)?)
    }

    /// Records the end of an attempt. Returns `false` and records nothing if the execution is over
    /// or that attempt is not in flight.
    pub fn end_attempt(
        &mut self,
        number: u32,
        attempt: u32,
        result: InvokeResult,
        world: &mut dyn ExecutionEnvironment,
    ) -> Result<bool, RuleViolation> {
        if self.is_terminal()
            || self.attempt_in_flight(number).map(|flight| flight.attempt) != Some(attempt)
        {
            return Ok(false);
        }
        let promise = self.promise_id(number);
        let command = match result.and_then(|payload| self.check_payload_size(payload)) {
            Ok(result) => JournalCommand::CompleteAttempt { promise, result },
            Err(error) => {
                let mut bytes = [0; 4];
                world.fill_entropy(&mut bytes);
                JournalCommand::FailAttempt {
                    promise,
                    error,
                    entropy: u32::from_le_bytes(bytes),
                }
            }
        };
        self.record_command(command, world.now())?;
        Ok(true)
    }

    /// Ends an operation with `error` without further attempts. Returns `false` and records nothing
    /// if the operation or the execution is already over.
    pub fn give_up_operation(
        &mut self,
        number: u32,
        error: ExecutionError,
        now: Timestamp,
    ) -> Result<bool, RuleViolation> {
        if self.is_terminal() || self.index.outcome_sequence(number).is_some() {
            return Ok(false);
        }
        if self.index.scheduled_invokes.contains(&number) {
            self.start_attempt(number, InvokePerformer::Owner, now)?;
        }
        self.record_command(
            JournalCommand::GiveUpInvoke {
                promise: self.promise_id(number),
                error,
            },
            now,
        )?;
        Ok(true)
    }

    /// Fires the timers that are due at `now`.
    pub fn fire_due_timers(&mut self, now: Timestamp) -> Result<(), RuleViolation> {
        let due: Vec<u32> = self
            .index
            .due_times
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, number)| *number)
            .collect();
        for number in due {
            if self.index.is_timer(number) {
                self.record_command(
                    JournalCommand::FireTimer {
                        promise: self.promise_id(number),
                    },
                    now,
                )?;
            }
        }
        Ok(())
    }

    /// Returns the attempts of child executions whose timeout has passed at `now`.
    pub fn overdue_attempts(&self, now: Timestamp) -> Vec<AttemptInFlight> {
        self.index.overdue_attempts(now).collect()
    }

    /// Returns the time at which the next timer, retry or attempt timeout is due; `None` if nothing
    /// is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.index.due_times.first().map(|(at, _)| *at)
    }

    /// Returns the number and the size of the signals that were delivered and not consumed.
    pub const fn signal_backlog(&self) -> SignalBacklog {
        self.index.signal_backlog
    }

    /// Buffers a signal. If the open await waits for this signal name, it receives the oldest
    /// buffered signal.
    pub fn deliver_signal(
        &mut self,
        signal_name: &BoundedName,
        payload: Payload,
        now: Timestamp,
    ) -> Result<(), RuleViolation> {
        self.record_command(
            JournalCommand::DeliverSignal {
                signal_name: signal_name.clone(),
                payload,
            },
            now,
        )?;
        if let Some(Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(name),
        }) = self
            .index
            .open_await
            .and_then(|sequence| self.event_at(sequence))
            && name == signal_name
            && let Some(promise) = waiting_on.first().cloned()
            && promise
                .child_number_in(self.id())
                .is_some_and(|number| self.index.outcome_sequence(number).is_none())
        {
            self.record_command(JournalCommand::ReceiveSignal { promise }, now)?;
        }
        Ok(())
    }

    /// Requests cancellation. Returns `false` and records nothing if the execution is over or
    /// cancellation was already requested.
    ///
    /// An execution whose guest has not begun has nothing to clean up: its cancellation is final
    /// immediately.
    pub fn request_cancel(
        &mut self,
        reason: SharedText,
        now: Timestamp,
    ) -> Result<bool, RuleViolation> {
        if self.is_terminal() || self.index.cancel_requested_at.is_some() {
            return Ok(false);
        }
        self.record_command(
            JournalCommand::RequestCancel {
                reason: reason.clone(),
            },
            now,
        )?;
        if self.index.guest_events.is_empty() {
            self.record_command(JournalCommand::Cancel { reason }, now)?;
        }
        Ok(true)
    }

    /// Makes a requested cancellation final if the guest has not noticed it for `grace_ms`: it
    /// computes and never waits. Returns whether the execution is over now.
    pub fn cancel_unresponsive(
        &mut self,
        grace_ms: u64,
        now: Timestamp,
    ) -> Result<bool, RuleViolation> {
        let is_cancelling = self.journal.journal_state().phase() == ExecutionPhase::Cancelling;
        if !is_cancelling || self.has_observed_cancellation() {
            return Ok(false);
        }
        let requested = self.index.cancel_requested_at;
        let requested = requested.and_then(|sequence| {
            let place = usize::try_from(sequence).ok()?;
            self.journal.events().get(place)
        });
        if requested.is_none_or(|requested| requested.timestamp.plus_ms(grace_ms) > now) {
            return Ok(false);
        }
        let reason = self.cancel_reason();
        self.record_command(JournalCommand::Cancel { reason }, now)?;
        Ok(true)
    }

    /// Fails the execution for a reason that is not an outcome of its guest. An open await is
    /// cancelled first. Returns `false` and records nothing if the execution is over.
    pub fn fail_execution(
        &mut self,
        error: ExecutionError,
        now: Timestamp,
    ) -> Result<bool, RuleViolation> {
        let reason = error.message.clone();
        match self.journal.journal_state().phase() {
            _ if self.is_terminal() => return Ok(false),
            ExecutionPhase::Blocked => {
                self.record_command(JournalCommand::RequestCancel { reason }, now)?;
            }
            // Cleanup that waits can only be cancelled.
            ExecutionPhase::CleanupBlocked => {
                self.record_command(JournalCommand::Cancel { reason }, now)?;
                return Ok(true);
            }
            _ => {}
        }
        self.record_command(JournalCommand::Fail { error }, now)?;
        Ok(true)
    }
}
