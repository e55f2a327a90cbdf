//! Performs a request of a workflow that is not in its record.

use crate::Error;
use crate::host::{CallTarget, Invocation, LocalFunction, NextOutcome};
use crate::testing::execution::{SimulatedExecution, cancelled_error};
use crate::testing::limits::{self, misuse_error};
use crate::testing::protocol::{HostAnswer, HostRequest};
use crate::testing::scope::{UnwindReason, fail_test, unwind};
use crate::testing::state::{
    CancelState, InvocationPhase, JoinSetMembers, OpenWait, SimulatedInvocation,
    SimulatedOperation, SimulatedState, SimulationEvent,
};

impl SimulatedExecution {
    pub(crate) fn perform_request(
        &self,
        request: &HostRequest,
        local: LocalFunction,
    ) -> HostAnswer {
        let now = self.simulation.now();
        match request {
            HostRequest::Invoke(invocation) => match check_invocation(invocation) {
                Err(error) => HostAnswer::Refused(error),
                Ok(()) => {
                    let invocation = invocation.clone();
                    let invoke = SimulatedInvocation {
                        invocation,
                        local,
                        attempt: 0,
                        phase: InvocationPhase::Waits(now),
                    };
                    self.add_operation(SimulatedOperation::Invoke(Box::new(invoke)))
                }
            },
            HostRequest::Timer(duration_ms) => {
                HostAnswer::Promise(self.state.borrow_mut().add_timer(*duration_ms, now))
            }
            HostRequest::AwaitOne(promise) => {
                self.await_promises(std::slice::from_ref(promise), request)
            }
            HostRequest::AwaitAny(promises) | HostRequest::AwaitAll(promises) => {
                self.await_promises(promises, request)
            }
            HostRequest::JoinSet => self.new_join_set(),
            HostRequest::Submit { set, promise } => {
                done_or_refused(self.submit_to_join_set(*set, *promise))
            }
            HostRequest::Next { set, .. } => self.next_result(*set, request),
            HostRequest::Close(set) => done_or_refused(self.close_join_set(*set)),
            HostRequest::Signal { name, .. } => match limits::check_name(name) {
                Ok(()) => self.wait_for_answer(request),
                Err(error) => HostAnswer::Refused(error),
            },
            HostRequest::Now => {
                self.add_operation(SimulatedOperation::Other);
                HostAnswer::Time(now)
            }
            HostRequest::Random(length) => {
                self.add_operation(SimulatedOperation::Other);
                HostAnswer::Random(self.simulation.random_bytes(*length))
            }
            HostRequest::IsCancelled => HostAnswer::Flag(matches!(
                self.state.borrow().cancel,
                CancelState::Reported(_)
            )),
            HostRequest::ContinueAsNew(input) => {
                if let Err(error) = limits::check_size("the input", input) {
                    unwind(UnwindReason::Ended(error));
                }
                self.state.borrow_mut().continued = Some(input.clone());
                HostAnswer::Done
            }
        }
    }

    fn add_operation(&self, operation: SimulatedOperation) -> HostAnswer {
        HostAnswer::Promise(self.state.borrow_mut().add_operation(operation))
    }

    fn new_join_set(&self) -> HostAnswer {
        let mut state = self.state.borrow_mut();
        let number = state.add_operation(SimulatedOperation::Other);
        state.sets.insert(number, JoinSetMembers::default());
        HostAnswer::Promise(number)
    }

    fn submit_to_join_set(&self, set: u32, promise: u32) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        let is_owned = state
            .sets
            .values()
            .any(|other| other.members.contains(&promise));
        let is_invoke = state.invoke_mut(promise).is_some();
        let set = state.sets.get_mut(&set).ok_or_else(|| unknown_set(set))?;
        if !set.taken.is_empty() {
            return Err(misuse_error("results were taken from the join set already"));
        }
        if !is_invoke {
            return Err(misuse_error(format!(
                "operation {promise} is not an invocation"
            )));
        }
        if is_owned {
            return Err(misuse_error(format!(
                "promise {promise} is in a join set already"
            )));
        }
        set.members.push(promise);
        Ok(())
    }

    fn next_result(&self, set: u32, request: &HostRequest) -> HostAnswer {
        match self.state.borrow().sets.get(&set) {
            None => return HostAnswer::Refused(unknown_set(set)),
            Some(known) if known.taken.len() == known.members.len() => {
                return HostAnswer::Taken(NextOutcome::Empty);
            }
            Some(_) => {}
        }
        self.wait_for_answer(request)
    }

    /// Abandons the tasks in flight and cancels the children.
    fn close_join_set(&self, set: u32) -> Result<(), Error> {
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
                    Some(InvocationPhase::Child { .. }) => children.push(promise),
                    Some(InvocationPhase::Waits(_) | InvocationPhase::Runs(..)) => {
                        state.record_end(promise, Err(cancelled_error(REASON).non_retryable()));
                    }
                    Some(InvocationPhase::Over(_)) | None => {}
                }
            }
        }
        self.cancel_children(&children, REASON);
        Ok(())
    }

    fn await_promises(&self, promises: &[u32], request: &HostRequest) -> HostAnswer {
        let objection = check_await(&self.state.borrow(), promises);
        match objection {
            Some(objection) => HostAnswer::Refused(misuse_error(objection)),
            None => self.wait_for_answer(request),
        }
    }

    /// Advances the simulation until there is an answer. A child leaves instead; its parent
    /// advances the simulation.
    fn wait_for_answer(&self, request: &HostRequest) -> HostAnswer {
        self.open_wait(request);
        let crashed = self.simulation.crash_count();
        loop {
            if let Some(answer) = self.close_wait() {
                return answer;
            }
            if self.is_child() {
                unwind(UnwindReason::Blocked);
            }
            if !self.simulation.apply_next_event() {
                self.fail_stuck(request);
            }
            if self.simulation.crash_count() != crashed {
                unwind(UnwindReason::Crash);
            }
        }
    }

    /// Opens a wait, unless a replay repeats an open one. The timer has the lower number, as in a
    /// journal.
    fn open_wait(&self, request: &HostRequest) {
        let (mut state, now) = (self.state.borrow_mut(), self.simulation.now());
        if state.open.is_some() {
            return;
        }
        let open = OpenWait {
            request: request.clone(),
            timer: None,
        };
        let limit = match request {
            HostRequest::Next { timeout_ms, .. } | HostRequest::Signal { timeout_ms, .. } => {
                *timeout_ms
            }
            _ => None,
        };
        let limit = limit.filter(|_| self.answer_to(&state, &open).is_none());
        let timer = limit.map(|limit| state.add_timer(limit, now));
        if let HostRequest::Signal { .. } = request {
            state.add_operation(SimulatedOperation::Other);
        }
        state.open = Some(OpenWait { timer, ..open });
    }

    /// Closes the wait if there is an answer.
    fn close_wait(&self) -> Option<HostAnswer> {
        let (mut state, now) = (self.state.borrow_mut(), self.simulation.now());
        let open = state.open.as_ref()?;
        let answer = self.answer_to(&state, open)?;
        let open = state.open.take()?;
        match (&answer, &open.request) {
            (HostAnswer::Taken(NextOutcome::Done(promise, _)), HostRequest::Next { set, .. }) => {
                if let Some(set) = state.sets.get_mut(set) {
                    set.taken.push(*promise);
                }
            }
            (HostAnswer::Refused(_), _) if let CancelState::Requested(reason) = &state.cancel => {
                state.cancel = CancelState::Reported(reason.clone());
            }
            (
                HostAnswer::Signal(Some(_)) | HostAnswer::Refused(_),
                HostRequest::Signal { name, .. },
            ) => {
                if let Some(index) = state.buffered_signal(name, now) {
                    state.mailbox.remove(index);
                }
            }
            _ => {}
        }
        Some(answer)
    }

    /// The answer to a wait, if there is one yet. Cancellation takes precedence.
    pub(crate) fn answer_to(&self, state: &SimulatedState, open: &OpenWait) -> Option<HostAnswer> {
        if let CancelState::Requested(_) = state.cancel {
            return Some(HostAnswer::Refused(cancelled_error(
                "cancellation was requested",
            )));
        }
        let is_late = open
            .timer
            .is_some_and(|timer| state.outcome_of(timer).is_some());
        match &open.request {
            HostRequest::AwaitOne(promise) => state.outcome_of(*promise).map(HostAnswer::Outcome),
            HostRequest::AwaitAny(promises) => first_outcome(state, promises),
            HostRequest::AwaitAll(promises) => all_outcomes(state, promises),
            HostRequest::Next { set, .. } => next_outcome(state, *set)
                .or(is_late.then_some(HostAnswer::Taken(NextOutcome::TimedOut))),
            HostRequest::Signal { name, .. } => {
                match state.buffered_signal(name, self.simulation.now()) {
                    Some(index) => Some(received_signal(&state.mailbox[index].payload)),
                    None => is_late.then_some(HostAnswer::Signal(None)),
                }
            }
            _ => None,
        }
    }

    pub(crate) fn apply_event(&self, event: SimulationEvent) {
        let now = self.simulation.now();
        match event {
            SimulationEvent::Attempt(promise) => self.start_attempt(promise),
            SimulationEvent::AttemptEnd(promise) => {
                let mut state = self.state.borrow_mut();
                let outcome = match state.invoke_mut(promise).map(|invoke| &invoke.phase) {
                    Some(InvocationPhase::Runs(_, outcome)) => outcome.clone(),
                    _ => return,
                };
                state.end_attempt(promise, outcome, now);
            }
            SimulationEvent::Overdue(promise) => self.end_overdue(promise),
            SimulationEvent::Fire(promise) => self
                .state
                .borrow_mut()
                .record_end(promise, Ok("null".to_owned())),
            SimulationEvent::Delivery => {}
            SimulationEvent::Cancel => self.request_cancel("cancellation was requested"),
        }
    }

    fn fail_stuck(&self, request: &HostRequest) -> ! {
        let mut message = format!(
            "{} would {request} forever: no operation in flight can end it",
            self.entry.name
        );
        for child in self.simulation.waiting_children() {
            message.push_str("; its child ");
            message.push_str(&child);
        }
        fail_test(Error::new("stuck", message).non_retryable())
    }
}

fn check_invocation(invocation: &Invocation) -> Result<(), Error> {
    let (CallTarget::Function(name) | CallTarget::Http(name)) = &invocation.target;
    limits::check_name(name)?;
    limits::check_size("the input", &invocation.input)?;
    invocation
        .retry
        .as_ref()
        .map_or(Ok(()), limits::check_policy)
}

fn check_await(state: &SimulatedState, promises: &[u32]) -> Option<String> {
    if promises.is_empty() {
        return Some("there is nothing to wait for".to_owned());
    }
    let repeated = (1..promises.len()).find(|index| promises[..*index].contains(&promises[*index]));
    if let Some(index) = repeated {
        return Some(format!("promise {} is named twice", promises[index]));
    }
    promises
        .iter()
        .find_map(|promise| match state.operations.get(*promise as usize) {
            Some(SimulatedOperation::Invoke(_) | SimulatedOperation::Timer { .. }) => None,
            Some(SimulatedOperation::Other) => Some(format!(
                "operation {promise} is neither an invocation nor a timer"
            )),
            None => Some(format!("promise {promise} does not exist")),
        })
}

fn first_outcome(state: &SimulatedState, promises: &[u32]) -> Option<HostAnswer> {
    let promise = state.ended.iter().find(|ended| promises.contains(ended))?;
    let index = (0..)
        .zip(promises)
        .find_map(|(index, other)| (other == promise).then_some(index))?;
    Some(HostAnswer::First(index, state.outcome_of(*promise)?))
}

fn all_outcomes(state: &SimulatedState, promises: &[u32]) -> Option<HostAnswer> {
    let outcomes: Option<Vec<_>> = promises
        .iter()
        .map(|promise| state.outcome_of(*promise))
        .collect();
    outcomes.map(HostAnswer::Outcomes)
}

fn next_outcome(state: &SimulatedState, set: u32) -> Option<HostAnswer> {
    let set = state.sets.get(&set)?;
    let promise = state
        .ended
        .iter()
        .find(|ended| set.members.contains(ended) && !set.taken.contains(ended))?;
    Some(HostAnswer::Taken(NextOutcome::Done(
        *promise,
        state.outcome_of(*promise)?,
    )))
}

fn received_signal(payload: &str) -> HostAnswer {
    match limits::check_size("a signal", payload) {
        Ok(()) => HostAnswer::Signal(Some(payload.to_owned())),
        Err(error) => HostAnswer::Refused(error),
    }
}

fn done_or_refused(result: Result<(), Error>) -> HostAnswer {
    result.map_or_else(HostAnswer::Refused, |()| HostAnswer::Done)
}

fn unknown_set(set: u32) -> Error {
    misuse_error(format!("join set {set} does not exist"))
}
