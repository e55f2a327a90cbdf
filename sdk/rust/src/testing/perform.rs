//! Performs a request of a workflow that is not in its record.

use crate::Error;
use crate::host::{Invocation, Local, Taken, Target};
use crate::testing::execution::{Execution, cancelled};
use crate::testing::limits::{self, misuse};
use crate::testing::protocol::{Answer, Ask};
use crate::testing::scope::{Left, leave, stop};
use crate::testing::state::{Cancel, Event, Invoke, Open, Operation, Phase, Set, State};

impl Execution {
    pub(crate) fn perform(&self, ask: &Ask, local: Local) -> Answer {
        let now = self.world.now();
        match ask {
            Ask::Invoke(invocation) => match check_invocation(invocation) {
                Err(error) => Answer::Refused(error),
                Ok(()) => {
                    let invocation = invocation.clone();
                    let invoke = Invoke {
                        invocation,
                        local,
                        attempt: 0,
                        phase: Phase::Waits(now),
                    };
                    self.add(Operation::Invoke(Box::new(invoke)))
                }
            },
            Ask::Timer(duration_ms) => {
                Answer::Promise(self.state.borrow_mut().add_timer(*duration_ms, now))
            }
            Ask::AwaitOne(promise) => self.wait_for(std::slice::from_ref(promise), ask),
            Ask::AwaitAny(promises) | Ask::AwaitAll(promises) => self.wait_for(promises, ask),
            Ask::JoinSet => self.new_set(),
            Ask::Submit { set, promise } => done(self.submit(*set, *promise)),
            Ask::Next { set, .. } => self.next(*set, ask),
            Ask::Close(set) => done(self.close(*set)),
            Ask::Signal { name, .. } => match limits::name(name) {
                Ok(()) => self.wait(ask),
                Err(error) => Answer::Refused(error),
            },
            Ask::Now => {
                self.add(Operation::Other);
                Answer::Time(now)
            }
            Ask::Random(length) => {
                self.add(Operation::Other);
                Answer::Random(self.world.random(*length))
            }
            Ask::IsCancelled => {
                Answer::Flag(matches!(self.state.borrow().cancel, Cancel::Reported(_)))
            }
            Ask::ContinueAsNew(input) => {
                if let Err(error) = limits::fits("the input", input) {
                    leave(Left::Ended(error));
                }
                self.state.borrow_mut().continued = Some(input.clone());
                Answer::Done
            }
        }
    }

    fn add(&self, operation: Operation) -> Answer {
        Answer::Promise(self.state.borrow_mut().add(operation))
    }

    fn new_set(&self) -> Answer {
        let mut state = self.state.borrow_mut();
        let number = state.add(Operation::Other);
        state.sets.insert(number, Set::default());
        Answer::Promise(number)
    }

    fn submit(&self, set: u32, promise: u32) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        let is_owned = state
            .sets
            .values()
            .any(|other| other.members.contains(&promise));
        let is_invoke = state.invoke_mut(promise).is_some();
        let set = state.sets.get_mut(&set).ok_or_else(|| unknown_set(set))?;
        if !set.taken.is_empty() {
            return Err(misuse("results were taken from the join set already"));
        }
        if !is_invoke {
            return Err(misuse(format!("operation {promise} is not an invocation")));
        }
        if is_owned {
            return Err(misuse(format!(
                "promise {promise} is in a join set already"
            )));
        }
        set.members.push(promise);
        Ok(())
    }

    fn next(&self, set: u32, ask: &Ask) -> Answer {
        match self.state.borrow().sets.get(&set) {
            None => return Answer::Refused(unknown_set(set)),
            Some(known) if known.taken.len() == known.members.len() => {
                return Answer::Taken(Taken::Empty);
            }
            Some(_) => {}
        }
        self.wait(ask)
    }

    /// Abandons the tasks in flight and cancels the children.
    fn close(&self, set: u32) -> Result<(), Error> {
        const REASON: &str = "the operation was abandoned";
        let mut children = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let members = state
                .sets
                .get(&set)
                .ok_or_else(|| unknown_set(set))?
                .members
                .clone();
            for promise in members {
                match state.invoke_mut(promise).map(|invoke| &invoke.phase) {
                    Some(Phase::Child { .. }) => children.push(promise),
                    Some(Phase::Waits(_) | Phase::Runs(..)) => {
                        state.end(promise, Err(cancelled(REASON).permanent()));
                    }
                    Some(Phase::Over(_)) | None => {}
                }
            }
        }
        self.cancel(&children, REASON);
        Ok(())
    }

    fn wait_for(&self, promises: &[u32], ask: &Ask) -> Answer {
        let objection = check_await(&self.state.borrow(), promises);
        match objection {
            Some(objection) => Answer::Refused(misuse(objection)),
            None => self.wait(ask),
        }
    }

    /// Advances the simulation until there is an answer. A child leaves instead; its parent
    /// advances the simulation.
    fn wait(&self, ask: &Ask) -> Answer {
        self.open(ask);
        let crashed = self.world.crashed();
        loop {
            if let Some(answer) = self.close_wait() {
                return answer;
            }
            if self.is_child() {
                leave(Left::Blocked);
            }
            if !self.world.advance() {
                self.stuck(ask);
            }
            if self.world.crashed() != crashed {
                leave(Left::Crash);
            }
        }
    }

    /// Opens a wait, unless a replay repeats an open one. The timer has the lower number, as in a
    /// journal.
    fn open(&self, ask: &Ask) {
        let (mut state, now) = (self.state.borrow_mut(), self.world.now());
        if state.open.is_some() {
            return;
        }
        let open = Open {
            ask: ask.clone(),
            timer: None,
        };
        let limit = match ask {
            Ask::Next { timeout_ms, .. } | Ask::Signal { timeout_ms, .. } => *timeout_ms,
            _ => None,
        };
        let limit = limit.filter(|_| self.answer(&state, &open).is_none());
        let timer = limit.map(|limit| state.add_timer(limit, now));
        if let Ask::Signal { .. } = ask {
            state.add(Operation::Other);
        }
        state.open = Some(Open { timer, ..open });
    }

    /// Closes the wait if there is an answer.
    fn close_wait(&self) -> Option<Answer> {
        let (mut state, now) = (self.state.borrow_mut(), self.world.now());
        let open = state.open.as_ref()?;
        let answer = self.answer(&state, open)?;
        let open = state.open.take()?;
        match (&answer, &open.ask) {
            (Answer::Taken(Taken::Done(promise, _)), Ask::Next { set, .. }) => {
                if let Some(set) = state.sets.get_mut(set) {
                    set.taken.push(*promise);
                }
            }
            (Answer::Refused(_), _) if let Cancel::Requested(reason) = &state.cancel => {
                state.cancel = Cancel::Reported(reason.clone());
            }
            (Answer::Signal(Some(_)) | Answer::Refused(_), Ask::Signal { name, .. }) => {
                if let Some(place) = state.signal(name, now) {
                    state.mailbox.remove(place);
                }
            }
            _ => {}
        }
        Some(answer)
    }

    /// The answer to a wait, if there is one yet. Cancellation takes precedence.
    pub(crate) fn answer(&self, state: &State, open: &Open) -> Option<Answer> {
        if let Cancel::Requested(_) = state.cancel {
            return Some(Answer::Refused(cancelled("cancellation was requested")));
        }
        let is_late = open
            .timer
            .is_some_and(|timer| state.outcome(timer).is_some());
        match &open.ask {
            Ask::AwaitOne(promise) => state.outcome(*promise).map(Answer::Outcome),
            Ask::AwaitAny(promises) => first(state, promises),
            Ask::AwaitAll(promises) => all(state, promises),
            Ask::Next { set, .. } => {
                taken(state, *set).or(is_late.then_some(Answer::Taken(Taken::TimedOut)))
            }
            Ask::Signal { name, .. } => match state.signal(name, self.world.now()) {
                Some(place) => Some(received(&state.mailbox[place].payload)),
                None => is_late.then_some(Answer::Signal(None)),
            },
            _ => None,
        }
    }

    pub(crate) fn apply_event(&self, event: Event) {
        let now = self.world.now();
        match event {
            Event::Attempt(promise) => self.attempt(promise),
            Event::AttemptEnd(promise) => {
                let mut state = self.state.borrow_mut();
                let outcome = match state.invoke_mut(promise).map(|invoke| &invoke.phase) {
                    Some(Phase::Runs(_, outcome)) => outcome.clone(),
                    _ => return,
                };
                state.end_attempt(promise, outcome, now);
            }
            Event::Overdue(promise) => self.end_overdue(promise),
            Event::Fire(promise) => self.state.borrow_mut().end(promise, Ok("null".to_owned())),
            Event::Delivery => {}
            Event::Cancel => self.request_cancel("cancellation was requested"),
        }
    }

    fn stuck(&self, ask: &Ask) -> ! {
        let mut message = format!(
            "{} would {ask} forever: no operation in flight can end it",
            self.entry.name
        );
        for child in self.world.waiting_children() {
            message.push_str("; its child ");
            message.push_str(&child);
        }
        stop(Error::new("stuck", message).permanent())
    }
}

fn check_invocation(invocation: &Invocation) -> Result<(), Error> {
    let (Target::Function(name) | Target::Http(name)) = &invocation.target;
    limits::name(name)?;
    limits::fits("the input", &invocation.input)?;
    invocation.retry.as_ref().map_or(Ok(()), limits::policy)
}

fn check_await(state: &State, promises: &[u32]) -> Option<String> {
    if promises.is_empty() {
        return Some("there is nothing to wait for".to_owned());
    }
    let repeated = (1..promises.len()).find(|place| promises[..*place].contains(&promises[*place]));
    if let Some(place) = repeated {
        return Some(format!("promise {} is named twice", promises[place]));
    }
    promises
        .iter()
        .find_map(|promise| match state.operations.get(*promise as usize) {
            Some(Operation::Invoke(_) | Operation::Timer { .. }) => None,
            Some(Operation::Other) => Some(format!(
                "operation {promise} is neither an invocation nor a timer"
            )),
            None => Some(format!("promise {promise} does not exist")),
        })
}

fn first(state: &State, promises: &[u32]) -> Option<Answer> {
    let promise = state.ended.iter().find(|ended| promises.contains(ended))?;
    let place = (0..)
        .zip(promises)
        .find_map(|(place, other)| (other == promise).then_some(place))?;
    Some(Answer::First(place, state.outcome(*promise)?))
}

fn all(state: &State, promises: &[u32]) -> Option<Answer> {
    let outcomes: Option<Vec<_>> = promises
        .iter()
        .map(|promise| state.outcome(*promise))
        .collect();
    outcomes.map(Answer::Outcomes)
}

fn taken(state: &State, set: u32) -> Option<Answer> {
    let set = state.sets.get(&set)?;
    let promise = state
        .ended
        .iter()
        .find(|ended| set.members.contains(ended) && !set.taken.contains(ended))?;
    Some(Answer::Taken(Taken::Done(
        *promise,
        state.outcome(*promise)?,
    )))
}

fn received(payload: &str) -> Answer {
    match limits::fits("a signal", payload) {
        Ok(()) => Answer::Signal(Some(payload.to_owned())),
        Err(error) => Answer::Refused(error),
    }
}

fn done(result: Result<(), Error>) -> Answer {
    result.map_or_else(Answer::Refused, |()| Answer::Done)
}

fn unknown_set(set: u32) -> Error {
    misuse(format!("join set {set} does not exist"))
}
