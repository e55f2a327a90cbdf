//! What happens outside of an execution: attempts that start and end, time that passes, signals, cancellation.

use onward_journal::{
    AwaitKind, Command, Event, ExecutionError, InvokeResult, Name, Payload, Performer, Text, Timestamp, Violation,
};

use crate::{Execution, InFlight, World};

impl Execution {
    /// Operations that an attempt can be started of at `now`, in the order in which they were wanted.
    pub fn startable(&self, now: Timestamp) -> Vec<u32> {
        let due = self.index.due.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number);
        let retries = due.filter(|number| self.index.is_retry(*number));
        self.index.scheduled.iter().copied().chain(retries).collect()
    }

    /// Whether there is something that no attempt was started of.
    pub fn has_scheduled(&self) -> bool {
        !self.index.scheduled.is_empty()
    }

    /// Starts the next attempt of an operation, and returns its number.
    pub fn start_attempt(&mut self, number: u32, performer: Performer, now: Timestamp) -> Result<u32, Violation> {
        self.record(Command::StartAttempt { promise: self.promise(number), performer }, now)?;
        Ok(self.index.in_flight.get(&number).map_or(0, |flight| flight.attempt))
    }

    /// The number of the next attempt of an operation.
    pub fn next_attempt(&self, number: u32) -> u32 {
        self.journal.fold().invoke(&self.promise(number)).map_or(0, |invoke| invoke.attempt) + 1
    }

    /// The attempts under way.
    pub fn in_flight(&self) -> impl Iterator<Item = InFlight> {
        self.index.in_flight.values().copied()
    }

    /// The attempt of an operation that is under way.
    pub fn flight(&self, number: u32) -> Option<InFlight> {
        self.index.in_flight.get(&number).copied()
    }

    /// What an invocation was asked to do.
    pub fn invocation(&self, number: u32) -> Option<&Event> {
        self.event_at(self.index.allocation(number)?)
    }

    /// An attempt ended. Tells whether that was news: an attempt that is not under way changes nothing.
    pub fn end_attempt(
        &mut self,
        number: u32,
        attempt: u32,
        result: InvokeResult,
        world: &mut dyn World,
    ) -> Result<bool, Violation> {
        if self.is_over() || self.flight(number).map(|flight| flight.attempt) != Some(attempt) {
            return Ok(false);
        }
        let promise = self.promise(number);
        let command = match result.and_then(|payload| self.fitting(payload)) {
            Ok(result) => Command::CompleteAttempt { promise, result },
            Err(error) => {
                let mut bytes = [0; 4];
                world.entropy(&mut bytes);
                Command::FailAttempt { promise, error, entropy: u32::from_le_bytes(bytes) }
            }
        };
        self.record(command, world.now())?;
        Ok(true)
    }

    /// Gives an operation up: it ends with `error`. Tells whether that was news.
    pub fn give_up(&mut self, number: u32, error: ExecutionError, now: Timestamp) -> Result<bool, Violation> {
        if self.is_over() || self.index.outcome(number).is_some() {
            return Ok(false);
        }
        if self.index.scheduled.contains(&number) {
            self.start_attempt(number, Performer::Owner, now)?;
        }
        self.record(Command::GiveUp { promise: self.promise(number), error }, now)?;
        Ok(true)
    }

    /// Fires the timers whose time has come.
    pub fn fire_due(&mut self, now: Timestamp) -> Result<(), Violation> {
        let due: Vec<u32> = self.index.due.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number).collect();
        for number in due {
            if self.index.is_timer(number) {
                self.record(Command::FireTimer { promise: self.promise(number) }, now)?;
            }
        }
        Ok(())
    }

    /// Attempts that others perform and that have taken longer than they may.
    pub fn overdue(&self, now: Timestamp) -> Vec<InFlight> {
        self.index.overdue(now).collect()
    }

    /// When a timer, a retry or the end of somebody's patience is due next.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.index.due.first().map(|(at, _)| *at)
    }

    /// Buffers a signal, and gives the oldest to the await that waits for one.
    pub fn deliver_signal(&mut self, signal_name: &Name, payload: Payload, now: Timestamp) -> Result<(), Violation> {
        self.record(Command::DeliverSignal { signal_name: signal_name.clone(), payload }, now)?;
        if let Some(Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(name) }) =
            self.index.open.and_then(|sequence| self.event_at(sequence))
            && name == signal_name
            && let Some(promise) = waiting_on.first().cloned()
            && promise.number_in(self.id()).is_some_and(|number| self.index.outcome(number).is_none())
        {
            self.record(Command::ReceiveSignal { promise }, now)?;
        }
        Ok(())
    }

    /// Asks for cancellation. Tells whether that was news.
    ///
    /// An execution whose guest has not begun has nothing to clean up: its cancellation is final at once.
    pub fn request_cancel(&mut self, reason: Text, now: Timestamp) -> Result<bool, Violation> {
        if self.is_over() || self.index.cancel.is_some() {
            return Ok(false);
        }
        self.record(Command::RequestCancel { reason: reason.clone() }, now)?;
        if self.index.script.is_empty() {
            self.record(Command::Cancel { reason }, now)?;
        }
        Ok(true)
    }
}
