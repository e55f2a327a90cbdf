//! What happens when a workflow asks for something for the first time.

use crate::Error;
use crate::host::{Local, Taken};
use crate::testing::execution::Execution;
use crate::testing::protocol::{Answer, Ask};
use crate::testing::scope::stop;
use crate::testing::state::{Cancel, Event, Invoke, Operation, Phase, Set, State, micros};

impl Execution {
    pub(crate) fn perform(&self, ask: &Ask, local: Local) -> Answer {
        match ask {
            Ask::Invoke(invocation) => {
                let phase = Phase::Waits(self.state.borrow().now);
                let invoke = Invoke { invocation: invocation.clone(), local, attempt: 0, phase };
                self.add(Operation::Invoke(Box::new(invoke)))
            }
            Ask::Timer(duration_ms) => {
                let fires_at = self.state.borrow().now.saturating_add(micros(*duration_ms));
                self.add(Operation::Timer { fires_at, fired: false })
            }
            Ask::AwaitOne(promise) => self.wait(None, ask, |state| state.outcome(*promise).map(Answer::Outcome)),
            Ask::AwaitAny(promises) => self.wait(None, ask, |state| first(state, promises)),
            Ask::AwaitAll(promises) => self.wait(None, ask, |state| all(state, promises)),
            Ask::JoinSet => self.new_set(),
            Ask::Submit { set, promise } => done(self.submit(*set, *promise)),
            Ask::Next { set, timeout_ms } => self.next(*set, *timeout_ms, ask),
            Ask::Close(set) => done(self.close(*set)),
            Ask::Signal { name, timeout_ms } => self.signal(name, *timeout_ms, ask),
            Ask::Now => {
                self.add(Operation::Instant);
                Answer::Time(self.state.borrow().now)
            }
            Ask::Random(length) => {
                self.add(Operation::Instant);
                Answer::Random(self.world.random(*length))
            }
            Ask::IsCancelled => Answer::Flag(self.state.borrow().cancel == Cancel::Told),
            Ask::ContinueAsNew(input) => {
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
        let number = state.add(Operation::Instant);
        state.sets.insert(number, Set::default());
        Answer::Promise(number)
    }

    fn submit(&self, set: u32, promise: u32) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        if state.invoke_mut(promise).is_none() {
            return Err(Error::other("only invocations can be submitted to a join set"));
        }
        if state.sets.values().any(|other| other.members.contains(&promise)) {
            return Err(Error::other(format!("operation {promise} is in a join set already")));
        }
        let set = state.sets.get_mut(&set).ok_or_else(|| unknown_set(set))?;
        if set.awaited {
            return Err(Error::other("a join set takes no members after its first result was asked for"));
        }
        set.members.push(promise);
        Ok(())
    }

    fn next(&self, set: u32, timeout_ms: Option<u64>, ask: &Ask) -> Answer {
        {
            let mut state = self.state.borrow_mut();
            let Some(known) = state.sets.get_mut(&set) else { return Answer::Refused(unknown_set(set)) };
            known.awaited = true;
            if known.taken.len() == known.members.len() {
                return Answer::Taken(Taken::Empty);
            }
        }
        let answer = self.wait(timeout_ms, ask, |state| taken(state, set));
        if let Answer::Taken(Taken::Done(promise, _)) = &answer
            && let Some(known) = self.state.borrow_mut().sets.get_mut(&set)
        {
            known.taken.push(*promise);
        }
        answer
    }

    /// What is under way ends as cancelled.
    fn close(&self, set: u32) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        let members = state.sets.get(&set).ok_or_else(|| unknown_set(set))?.members.clone();
        for promise in members {
            if state.outcome(promise).is_none() {
                state.end(promise, Err(cancelled("the join set was closed")));
            }
        }
        Ok(())
    }

    fn signal(&self, name: &str, timeout_ms: Option<u64>, ask: &Ask) -> Answer {
        self.add(Operation::Instant);
        let there =
            |state: &State| state.mailbox.iter().position(|signal| signal.name == name && signal.at <= state.now);
        let answer = self.wait(timeout_ms, ask, |state| {
            there(state).map(|place| Answer::Signal(Some(state.mailbox[place].payload.clone())))
        });
        if let Answer::Signal(Some(_)) = &answer {
            let mut state = self.state.borrow_mut();
            if let Some(place) = there(&state) {
                state.mailbox.remove(place);
            }
        }
        answer
    }

    /// Lets things happen until there is an answer, the time is over, or cancellation is asked for.
    fn wait(&self, timeout_ms: Option<u64>, ask: &Ask, ready: impl Fn(&State) -> Option<Answer>) -> Answer {
        let deadline = timeout_ms.map(|limit| self.state.borrow().now.saturating_add(micros(limit)));
        loop {
            let next = {
                let mut state = self.state.borrow_mut();
                if state.cancel == Cancel::Asked {
                    state.cancel = Cancel::Told;
                    return Answer::Refused(cancelled("cancellation was asked for"));
                }
                if let Some(answer) = ready(&state) {
                    return answer;
                }
                state.next_event()
            };
            match (next, deadline) {
                (Some((at, event)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                    self.happen(at, event);
                }
                (_, Some(deadline)) => {
                    self.state.borrow_mut().now = deadline;
                    return too_late(ask);
                }
                (_, None) => self.stuck(ask),
            }
        }
    }

    fn happen(&self, at: i64, event: Event) {
        let mut state = self.state.borrow_mut();
        state.now = state.now.max(at);
        match event {
            Event::Attempt(promise) => {
                drop(state);
                self.attempt(promise);
            }
            Event::AttemptEnd(promise) => state.end_attempt(promise),
            Event::Fire(promise) => state.end(promise, Ok("null".to_owned())),
            Event::Delivery => {}
            Event::Cancel => state.cancel = Cancel::Asked,
        }
    }

    fn stuck(&self, ask: &Ask) -> ! {
        let message = format!("{} would {ask} for ever: nothing is under way that could end it", self.function);
        stop(Error::new("stuck", message).permanent())
    }
}

fn first(state: &State, promises: &[u32]) -> Option<Answer> {
    let promise = state.ended.iter().find(|ended| promises.contains(ended))?;
    let place = (0..).zip(promises).find_map(|(place, other)| (other == promise).then_some(place))?;
    Some(Answer::First(place, state.outcome(*promise)?))
}

fn all(state: &State, promises: &[u32]) -> Option<Answer> {
    let outcomes: Option<Vec<_>> = promises.iter().map(|promise| state.outcome(*promise)).collect();
    outcomes.map(Answer::Outcomes)
}

fn taken(state: &State, set: u32) -> Option<Answer> {
    let set = state.sets.get(&set)?;
    let promise = state.ended.iter().find(|ended| set.members.contains(ended) && !set.taken.contains(ended))?;
    Some(Answer::Taken(Taken::Done(*promise, state.outcome(*promise)?)))
}

fn too_late(ask: &Ask) -> Answer {
    match ask {
        Ask::Next { .. } => Answer::Taken(Taken::TimedOut),
        _ => Answer::Signal(None),
    }
}

fn done(result: Result<(), Error>) -> Answer {
    result.map_or_else(Answer::Refused, |()| Answer::Done)
}

fn unknown_set(set: u32) -> Error {
    Error::other(format!("there is no join set {set}"))
}

fn cancelled(message: &str) -> Error {
    Error::new("cancelled", message)
}
