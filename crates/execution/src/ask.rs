//! What a guest asks for: looked for in the record, recorded where the record ends.

use std::sync::Arc;

use onward_journal::{
    AwaitKind, Command, Event, ExecutionError, InvokeResult, JoinSetId, Name, Payload, PromiseId, Timestamp, Violation,
};

use crate::execution::{Execution, Open, Shape, Waits, World};
use crate::seen::Operation;
use crate::{Answer, Divergence, Request, Taken, WaitFor, repeat};

/// Bytes of entropy that a guest may draw at once.
const RANDOM_MAX: u32 = 4_096;

/// The outer error is a defect of the journal or of this crate, the inner one a guest that does not repeat itself.
type Asked<T> = Result<Result<T, Divergence>, Violation>;

/// Goes on with what is inside, or returns with the divergence.
macro_rules! same {
    ($asked:expr) => {
        match $asked? {
            Ok(value) => value,
            Err(divergence) => return Ok(Err(divergence)),
        }
    };
}

pub(crate) fn ask(execution: &mut Execution, request: Request, world: &mut dyn World) -> Asked<Waits> {
    let is_recorded = !matches!(request, Request::ContinueAsNew { .. } | Request::Log { .. } | Request::IsCancelled);
    if is_recorded && execution.journal.fold().version() >= execution.limits.events_max && execution.peek().is_none() {
        let message = format!("the journal has {} events: continue as new", execution.limits.events_max);
        return refused(ExecutionError::named("journal_full", message));
    }
    match request {
        Request::Invoke { kind, function: function_name, input, policy: retry_policy, delivery } => {
            let input = match execution.fitting(input) {
                Ok(input) => input,
                Err(error) => return refused(error),
            };
            same!(execution.step(Command::Schedule { kind, function_name, input, retry_policy, delivery }, world));
            begin(execution, Operation::Invoke { is_owned: false })
        }
        Request::Timer { duration_ms } => {
            let number = same!(timer(execution, duration_ms, world));
            answer(Answer::Promise(number))
        }
        Request::Await { promises, wait } => wait_for(execution, &promises, wait, world),
        Request::JoinSet => {
            same!(execution.step(Command::CreateJoinSet, world));
            begin(execution, Operation::JoinSet)
        }
        Request::Submit { set, promise } => submit(execution, set, promise, world),
        Request::Next { set, timeout_ms } => next(execution, set, timeout_ms, world),
        Request::Close { set } => close(execution, set),
        Request::Signal { name, timeout_ms } => signal(execution, name, timeout_ms, world),
        Request::Now => now(execution, world),
        Request::Random { length } => random(execution, length, world),
        Request::IsCancelled => answer(Answer::Flag(execution.was_told_of_cancellation())),
        Request::ContinueAsNew { input } => match execution.fitting(input) {
            Ok(input) => {
                execution.next_input = Some(input);
                answer(Answer::Done)
            }
            Err(error) => refused(error),
        },
        Request::Log { level, message } => {
            if execution.peek().is_none() {
                world.log(level, &message);
            }
            answer(Answer::Done)
        }
    }
}

fn answer(answer: Answer) -> Asked<Waits> {
    Ok(Ok(Waits::Answer(answer)))
}

fn refused(error: ExecutionError) -> Asked<Waits> {
    answer(Answer::Refused(error))
}

fn misuse(message: String) -> Asked<Waits> {
    refused(ExecutionError::named("misuse", message).permanent())
}

pub(crate) fn too_large(found: usize, limit: usize) -> ExecutionError {
    ExecutionError::named("too_large", format!("{found} bytes of payload, at most {limit} are allowed")).permanent()
}

fn begin(execution: &mut Execution, operation: Operation) -> Asked<Waits> {
    let number = execution.seen.begin(operation);
    answer(Answer::Promise(number))
}

fn timer(execution: &mut Execution, duration_ms: u64, world: &mut dyn World) -> Asked<u32> {
    same!(execution.step(Command::Sleep { duration_ms }, world));
    Ok(Ok(execution.seen.begin(Operation::Timer)))
}

fn now(execution: &mut Execution, world: &mut dyn World) -> Asked<Waits> {
    let sequence = same!(execution.step(Command::ReadClock, world));
    execution.seen.begin(Operation::Value);
    match execution.event_at(sequence) {
        Some(Event::TimeRecorded { time, .. }) => answer(Answer::Time(*time)),
        _ => answer(Answer::Time(Timestamp::EPOCH)),
    }
}

fn random(execution: &mut Execution, length: u32, world: &mut dyn World) -> Asked<Waits> {
    if length > RANDOM_MAX {
        return misuse(format!("{length} bytes of randomness, at most {RANDOM_MAX} are allowed"));
    }
    let mut bytes = vec![0; length as usize];
    if execution.peek().is_none() {
        world.entropy(&mut bytes);
    }
    let sequence = same!(execution.step(Command::Random { value: bytes.into() }, world));
    execution.seen.begin(Operation::Value);
    match execution.event_at(sequence) {
        Some(Event::RandomGenerated { value, .. }) => answer(Answer::Random(Arc::clone(value))),
        _ => answer(Answer::Random(Arc::from([]))),
    }
}

fn wait_for(execution: &mut Execution, promises: &[u32], wait: WaitFor, world: &mut dyn World) -> Asked<Waits> {
    if let Some(objection) = execution.seen.objection_to_await(promises) {
        return misuse(objection);
    }
    let (kind, shape) = match wait {
        WaitFor::One if promises.len() > 1 => return misuse(format!("{} promises instead of one", promises.len())),
        WaitFor::One => (AwaitKind::Single, Shape::One(promises[0])),
        WaitFor::Any => (AwaitKind::Any, Shape::Any(promises.to_vec())),
        WaitFor::All => (AwaitKind::All, Shape::All(promises.to_vec())),
    };
    let waiting_on = promises.iter().map(|number| execution.promise(*number)).collect();
    let sequence = same!(execution.step(Command::Await { waiting_on, kind }, world));
    Ok(Ok(Waits::Await(Open { sequence, shape })))
}

fn submit(execution: &mut Execution, set: u32, promise: u32, world: &mut dyn World) -> Asked<Waits> {
    if let Some(objection) = execution.seen.objection_to_submit(set, promise) {
        return misuse(objection);
    }
    let command = Command::Submit { set: JoinSetId(execution.promise(set)), promise: execution.promise(promise) };
    same!(execution.step(command, world));
    execution.seen.submit(set, promise);
    answer(Answer::Done)
}

fn next(execution: &mut Execution, set: u32, timeout_ms: Option<u64>, world: &mut dyn World) -> Asked<Waits> {
    let Some(remaining) = execution.seen.remaining(set) else {
        return misuse(format!("there is no join set {set}"));
    };
    if remaining.is_empty() {
        return answer(Answer::Taken(Taken::Empty));
    }
    let mut waiting_on: Vec<PromiseId> = remaining.iter().map(|number| execution.promise(*number)).collect();
    if execution.can_take(set) {
        let taken = same!(take(execution, set, world));
        return answer(taken);
    }
    if let Some(duration_ms) = timeout_ms {
        let timer = same!(timer(execution, duration_ms, world));
        waiting_on.push(execution.promise(timer));
    }
    let sequence = same!(execution.step(Command::Await { waiting_on, kind: AwaitKind::Any }, world));
    Ok(Ok(Waits::Await(Open { sequence, shape: Shape::Next(set) })))
}

fn take(execution: &mut Execution, set: u32, world: &mut dyn World) -> Asked<Answer> {
    let command = Command::Next { set: JoinSetId(execution.promise(set)), timeout: None };
    let sequence = same!(execution.step(command, world));
    let own = execution.id();
    let Some(Event::JoinSetAwaited { promise_id, result, .. }) = execution.event_at(sequence) else {
        return Ok(Ok(Answer::Taken(Taken::TimedOut)));
    };
    let (number, result) = (promise_id.number_in(own).unwrap_or(u32::MAX), result.clone());
    execution.seen.take(set, number);
    Ok(Ok(Answer::Taken(Taken::Result(number, result))))
}

/// What is still under way is no longer wanted; whoever runs the execution cancels it. Where the record goes on, that was
/// done.
fn close(execution: &mut Execution, set: u32) -> Asked<Waits> {
    let Some(remaining) = execution.seen.remaining(set) else {
        return misuse(format!("there is no join set {set}"));
    };
    if execution.peek().is_none() {
        let unwanted: Vec<u32> = remaining.iter().copied().collect();
        execution.unwanted.extend(unwanted);
    }
    answer(Answer::Done)
}

fn signal(execution: &mut Execution, name: Name, timeout_ms: Option<u64>, world: &mut dyn World) -> Asked<Waits> {
    let timeout = match timeout_ms {
        Some(duration_ms) if !execution.can_receive(&name) => {
            let timer = same!(timer(execution, duration_ms, world));
            Some(execution.promise(timer))
        }
        _ => None,
    };
    let sequence = same!(execution.step(Command::AwaitSignal { signal_name: name, timeout }, world));
    let number = execution.seen.begin(Operation::Signal);
    match payload_at(execution, sequence) {
        Some(payload) => answer(Answer::Signal(Some(payload))),
        None => Ok(Ok(Waits::Await(Open { sequence, shape: Shape::Signal(number) }))),
    }
}

fn payload_at(execution: &Execution, sequence: u64) -> Option<Payload> {
    match execution.event_at(sequence) {
        Some(Event::SignalReceived { payload, .. }) => Some(payload.clone()),
        _ => None,
    }
}

/// What the guest is told when an await was resumed at `at`: only what was recorded before.
pub(crate) fn resumed(execution: &mut Execution, shape: &Shape, at: u64, world: &mut dyn World) -> Asked<Answer> {
    let seen = |number: &u32| execution.index.outcome(*number).filter(|sequence| *sequence < at);
    let told = match shape {
        Shape::One(number) => Answer::Outcome(outcome(execution, seen(number))),
        Shape::All(numbers) => {
            Answer::Outcomes(numbers.iter().map(|number| outcome(execution, seen(number))).collect())
        }
        Shape::Any(numbers) => {
            let complete = numbers.iter().zip(0..).filter_map(|(number, place)| Some((seen(number)?, place)));
            let first = complete.min();
            let place = first.map_or(0, |(_, place)| place);
            Answer::First(place, outcome(execution, first.map(|(sequence, _)| sequence)))
        }
        Shape::Signal(number) => Answer::Signal(seen(number).and_then(|sequence| payload_at(execution, sequence))),
        Shape::Next(set) => {
            return if execution.can_take(*set) {
                take(execution, *set, world)
            } else {
                Ok(Ok(Answer::Taken(Taken::TimedOut)))
            };
        }
    };
    Ok(Ok(told))
}

/// The outcome that is recorded there. A timer ends with `null`.
fn outcome(execution: &Execution, sequence: Option<u64>) -> InvokeResult {
    match sequence.and_then(|sequence| execution.event_at(sequence)) {
        Some(Event::InvokeCompleted { result, .. }) => result.clone(),
        _ => Ok(Payload::null()),
    }
}

impl Execution {
    /// The next event that is recorded of what the guest did; `None` where the record ends.
    pub(crate) fn peek(&self) -> Option<&Event> {
        self.index.script.get(self.cursor).and_then(|sequence| self.event_at(*sequence))
    }

    /// Finds what the guest asks for next in the record, or records it.
    fn step(&mut self, command: Command, world: &mut dyn World) -> Asked<u64> {
        let Some(sequence) = self.index.script.get(self.cursor).copied() else {
            let sequence = self.record(command, world.now())?;
            self.cursor += 1;
            return Ok(Ok(sequence));
        };
        let recorded = &self.journal.events()[usize::try_from(sequence).unwrap_or(usize::MAX)];
        if !repeat::is_repeated(&recorded.event, &command) {
            return Ok(Err(Divergence::new(self.id(), recorded, repeat::in_words(&command))));
        }
        self.cursor += 1;
        Ok(Ok(sequence))
    }

    /// Whether a result of the set is there to be taken: was, when this was recorded, or is.
    fn can_take(&self, set: u32) -> bool {
        let set = JoinSetId(self.promise(set));
        match self.peek() {
            Some(event) => matches!(event, Event::JoinSetAwaited { join_set_id, .. } if *join_set_id == set),
            None => self.journal.fold().next_ready(&set).is_some(),
        }
    }

    /// Whether a signal is there to be consumed: was, when this was recorded, or is.
    fn can_receive(&self, name: &str) -> bool {
        match self.peek() {
            Some(event) => matches!(event, Event::SignalReceived { .. }),
            None => self.index.buffered.get(name).is_some_and(|waiting| !waiting.is_empty()),
        }
    }

    /// Whether one of the awaits that the guest has gone through was interrupted.
    fn was_told_of_cancellation(&self) -> bool {
        self.index.interrupted.is_some_and(|awaiting| self.index.script[..self.cursor].binary_search(&awaiting).is_ok())
    }
}
