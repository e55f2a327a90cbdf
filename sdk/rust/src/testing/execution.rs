//! One execution: its record, and the position of the current run in it. Recorded requests are
//! answered from the record; new ones are performed.
//!
//! The workflow that a test runs stays on the stack while it waits, and advances the clock. A child
//! leaves the stack when it waits, and is replayed from its record when it can continue, as after a
//! crash: so parent and children share one clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::Error;
use crate::context::CallContext;
use crate::function::FunctionEntry;
use crate::host::{LocalFunction, Outcome};
use crate::log::LogLevel;
use crate::testing::limits;
use crate::testing::protocol::{HostAnswer, HostRequest};
use crate::testing::scope::{self, RunningFunction, UnwindReason, fail_test, unwind};
use crate::testing::simulation::{CrashMode, Simulation};
use crate::testing::state::{CancelState, InvocationPhase, SimulatedState};

/// Maximum number of successors of one execution.
const GENERATIONS_MAX: usize = 10_000;

pub(crate) struct SimulatedExecution {
    pub(crate) simulation: Rc<Simulation>,
    pub(crate) entry: FunctionEntry,
    pub(crate) state: RefCell<SimulatedState>,
    input: String,
    identity: ExecutionIdentity,
    track: RefCell<RecordCursor>,
    has_started: Cell<bool>,
}

/// Identity of an execution and its parent.
#[derive(Clone)]
pub(crate) struct ExecutionIdentity {
    /// Id of the first execution of its chain of successors.
    pub(crate) id: String,
    /// Id of the operation that it performs; empty without a parent.
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) parent: Option<ParentOperation>,
    /// Number of its predecessors.
    pub(crate) generation: usize,
    /// Number of workflows above it.
    pub(crate) depth: u32,
}

/// The operation that a child performs.
#[derive(Clone)]
pub(crate) struct ParentOperation {
    /// Index of the parent in the simulation.
    pub(crate) index: usize,
    pub(crate) promise: u32,
}

/// The record, and the position of the current run in it.
#[derive(Default)]
struct RecordCursor {
    record: Vec<(HostRequest, HostAnswer)>,
    position: usize,
    /// Length of the record at the last crash.
    crashed_at: Option<usize>,
}

impl SimulatedExecution {
    pub(crate) fn new(
        simulation: Rc<Simulation>,
        entry: FunctionEntry,
        input: String,
        identity: ExecutionIdentity,
        state: SimulatedState,
    ) -> Rc<Self> {
        Rc::new(Self {
            simulation,
            entry,
            state: RefCell::new(state),
            input,
            identity,
            track: RefCell::default(),
            has_started: Cell::new(false),
        })
    }

    pub(crate) fn call_context(&self) -> CallContext {
        let ExecutionIdentity { key, attempt, .. } = self.identity.clone();
        CallContext {
            execution: self.id(),
            idempotency_key: key,
            attempt,
        }
    }

    /// The name of an operation, as a task sees it.
    pub(crate) fn key_of(&self, operation: u32) -> String {
        format!("{}.{operation}", self.id())
    }

    /// Unique in a test.
    pub(crate) fn id(&self) -> String {
        match self.identity.generation {
            0 => self.identity.id.clone(),
            generation => format!("{}~{generation}", self.identity.id),
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.identity.depth
    }

    pub(crate) fn is_child(&self) -> bool {
        self.identity.parent.is_some()
    }

    /// Whether this is a child that has not started, or that can continue.
    pub(crate) fn is_runnable_child(&self) -> bool {
        let state = self.state.borrow();
        let can_continue = || {
            state
                .open
                .as_ref()
                .is_some_and(|open| self.answer_to(&state, open).is_some())
        };
        self.is_child() && !state.is_over && (!self.has_started.get() || can_continue())
    }

    /// Runs the function to its end, through every crash; returns `None` if it is a child that
    /// waits.
    pub(crate) fn run_until_wait(self: &Rc<Self>) -> Option<Outcome> {
        self.has_started.set(true);
        loop {
            self.track.borrow_mut().position = 0;
            match scope::run_in(RunningFunction::Workflow(Rc::clone(self)), || {
                (self.entry.run)(&self.input)
            }) {
                Ok(outcome) => {
                    self.require_end();
                    if !self.crashes_here() {
                        return Some(self.record_end(outcome));
                    }
                }
                Err(UnwindReason::Crash) => {}
                Err(UnwindReason::Blocked) => return None,
                Err(UnwindReason::Ended(error)) => return Some(self.record_end(Err(error))),
                Err(UnwindReason::Stop(error)) => fail_test(error),
            }
        }
    }

    /// Records the end and cancels the children.
    fn record_end(&self, outcome: Outcome) -> Outcome {
        let (outcome, children) = {
            let mut state = self.state.borrow_mut();
            state.is_over = true;
            let outcome = match (limits::recordable_outcome(outcome), &state.cancel) {
                (Err(error), CancelState::Requested(reason) | CancelState::Reported(reason))
                    if error.is_cancelled() =>
                {
                    Err(cancelled_error(reason).non_retryable())
                }
                (outcome, _) => outcome,
            };
            (outcome, child_operations(&state))
        };
        self.cancel_children(&children, "its parent execution ended");
        outcome
    }

    /// The successor, if there is one. It receives the signals that were not consumed.
    pub(crate) fn successor(&self) -> Option<Rc<Self>> {
        let state = self.state.borrow();
        let input = state.continued.clone()?;
        let generation = self.identity.generation + 1;
        if generation >= GENERATIONS_MAX {
            let message = format!(
                "{} continued as new {GENERATIONS_MAX} times",
                self.entry.name
            );
            fail_test(Error::new("stuck", message).non_retryable());
        }
        let cancel = match state.cancel {
            CancelState::At(at) => CancelState::At(at),
            CancelState::Never | CancelState::Requested(_) | CancelState::Reported(_) => {
                CancelState::Never
            }
        };
        let identity = ExecutionIdentity {
            generation,
            ..self.identity.clone()
        };
        let next = SimulatedState::new(state.mailbox.clone(), cancel);
        Some(Self::new(
            Rc::clone(&self.simulation),
            self.entry,
            input,
            identity,
            next,
        ))
    }

    /// Reports the outcome to the parent, unless the child has a successor or was abandoned.
    pub(crate) fn report_to_parent(&self, outcome: Outcome) {
        let Some(ParentOperation { index, promise }) = self.identity.parent else {
            return;
        };
        let Some(parent) = self.simulation.execution_at(index) else {
            return;
        };
        let successor = self
            .successor()
            .map(|successor| self.simulation.add_execution(successor));
        let mut state = parent.state.borrow_mut();
        let own_index = self.simulation.index_of(self);
        let Some(performer) = state
            .performer_mut(promise)
            .filter(|index| Some(**index) == own_index)
        else {
            return;
        };
        match successor {
            Some(index) => *performer = index,
            None if state.is_over => {}
            None => state.end_attempt(promise, outcome, self.simulation.now()),
        }
    }

    /// Requests cancellation of this execution and its children. Idempotent.
    pub(crate) fn request_cancel(&self, reason: &str) {
        let children = {
            let mut state = self.state.borrow_mut();
            if state.is_over
                || matches!(
                    state.cancel,
                    CancelState::Requested(_) | CancelState::Reported(_)
                )
            {
                return;
            }
            state.cancel = CancelState::Requested(reason.to_owned());
            child_operations(&state)
        };
        self.cancel_children(&children, reason);
    }

    /// Cancels children. A stub has no cleanup and ends at once.
    pub(crate) fn cancel_children(&self, children: &[u32], reason: &str) {
        for promise in children {
            let index = self.state.borrow_mut().performer_mut(*promise).copied();
            match index.and_then(|index| self.simulation.execution_at(index)) {
                Some(child) => child.request_cancel(reason),
                None => {
                    let outcome = Err(cancelled_error(reason).non_retryable());
                    self.state
                        .borrow_mut()
                        .end_attempt(*promise, outcome, self.simulation.now());
                }
            }
        }
    }

    /// The requests of this execution, for comparison with another run.
    pub(crate) fn requests(&self) -> Vec<HostRequest> {
        self.track
            .borrow()
            .record
            .iter()
            .map(|(request, _)| request.clone())
            .collect()
    }

    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        if !self.is_replaying() {
            self.simulation.add_log_message(level, message);
        }
    }

    pub(crate) fn request(&self, request: HostRequest, local: LocalFunction) -> HostAnswer {
        if let Some(answer) = self.recorded_answer(&request) {
            return answer;
        }
        if request.may_wait() && self.crashes_here() {
            unwind(UnwindReason::Crash);
        }
        let answer = self.perform_request(&request, local);
        let mut track = self.track.borrow_mut();
        track.record.push((request, answer.clone()));
        track.position += 1;
        answer
    }

    /// Describes what a child waits for.
    pub(crate) fn waiting_child(&self) -> Option<String> {
        let state = self.state.borrow();
        let open = state
            .open
            .as_ref()
            .filter(|_| self.is_child() && !state.is_over)?;
        Some(format!("{} would {}", self.entry.name, open.request))
    }

    fn is_replaying(&self) -> bool {
        let track = self.track.borrow();
        track.position < track.record.len()
    }

    fn recorded_answer(&self, request: &HostRequest) -> Option<HostAnswer> {
        let mut track = self.track.borrow_mut();
        let Some((known, answer)) = track.record.get(track.position) else {
            let state = self.state.borrow();
            if let Some(open) = state.open.as_ref().filter(|open| open.request != *request) {
                fail_test(self.nondeterminism_error(
                    track.position,
                    &open.request,
                    &request.to_string(),
                ));
            }
            return None;
        };
        if known != request {
            fail_test(self.nondeterminism_error(track.position, known, &request.to_string()));
        }
        let answer = answer.clone();
        track.position += 1;
        Some(answer)
    }

    fn require_end(&self) {
        let (track, state) = (self.track.borrow(), self.state.borrow());
        let more = track.record.get(track.position).map(|(request, _)| request);
        if let Some(known) = more.or(state.open.as_ref().map(|open| &open.request)) {
            fail_test(self.nondeterminism_error(track.position, known, "return"));
        }
    }

    fn nondeterminism_error(&self, position: usize, known: &HostRequest, now: &str) -> Error {
        let function = self.entry.name;
        let message = format!(
            "{function} is not deterministic: its request {position} was to {known}, and is now to {now}. \
             Take time from now(), randomness from random_u64() and effects from tasks"
        );
        Error::new("nondeterminism", message).non_retryable()
    }

    /// Whether to crash here: once at each length of the record.
    fn crashes_here(&self) -> bool {
        let mut track = self.track.borrow_mut();
        let here = Some(track.record.len());
        if self.simulation.crashes == CrashMode::Never || track.crashed_at == here {
            return false;
        }
        track.crashed_at = here;
        true
    }
}

/// The operations that children perform, those of stubs included.
fn child_operations(state: &SimulatedState) -> Vec<u32> {
    let performed = |phase: &InvocationPhase, is_workflow: bool| match phase {
        InvocationPhase::Child { .. } => true,
        InvocationPhase::Runs(..) => is_workflow,
        InvocationPhase::Waits(_) | InvocationPhase::Over(_) => false,
    };
    let its = state
        .invocations()
        .filter(|(_, invoke)| performed(&invoke.phase, invoke.is_workflow()));
    its.map(|(promise, _)| promise).collect()
}

pub(crate) fn cancelled_error(reason: &str) -> Error {
    Error::new("cancelled", reason)
}
