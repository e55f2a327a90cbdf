//! What happens outside of an execution: attempts that start and end, time that passes, signals, cancellation.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitKind, Event, ExecutionError, InvokePerformer, InvokeResult, JournalCommand, RuleViolation,
};

use crate::{AttemptInFlight, Execution, ExecutionEnvironment};

impl Execution {
    /// Operations that an attempt can be started of at `now`, in the order in which they were wanted.
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

    /// Whether there is something that no attempt was started of.
    pub fn has_scheduled_invokes(&self) -> bool {
        !self.index.scheduled_invokes.is_empty()
    }

    /// Starts the next attempt of an operation, and returns its number.
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

    /// The number of the next attempt of an operation.
    pub fn next_attempt(&self, number: u32) -> u32 {
        self.journal
            .journal_state()
            .invoke_state(&self.promise_id(number))
            .map_or(0, |invoke| invoke.attempt)
            + 1
    }

    /// The attempts under way.
    pub fn attempts_in_flight(&self) -> impl Iterator<Item = AttemptInFlight> {
        self.index.in_flight.values().copied()
    }

    /// The attempt of an operation that is under way.
    pub fn attempt_in_flight(&self, number: u32) -> Option<AttemptInFlight> {
        self.index.in_flight.get(&number).copied()
    }

    /// What an invocation was asked to do.
    pub fn invocation_event(&self, number: u32) -> Option<&Event> {
        self.event_at(self.index.allocation_sequence(number)?)
    }

    /// An attempt ended. Tells whether that was news: an attempt that is not under way changes nothing.
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

    /// Gives an operation up: it ends with `error`. Tells whether that was news.
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

    /// Fires the timers whose time has come.
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

    /// Attempts that others perform and that have taken longer than they may.
    pub fn overdue_attempts(&self, now: Timestamp) -> Vec<AttemptInFlight> {
        self.index.overdue_attempts(now).collect()
    }

    /// When a timer, a retry or the end of somebody's patience is due next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.index.due_times.first().map(|(at, _)| *at)
    }

    /// Buffers a signal, and gives the oldest to the await that waits for one.
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

    /// Asks for cancellation. Tells whether that was news.
    ///
    /// An execution whose guest has not begun has nothing to clean up: its cancellation is final at once.
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
}
