//! One execution: its record, and the position of the current run in it. Recorded requests are
//! answered from the record; new ones are performed.
//!
//! The workflow that a test runs stays on the stack while it waits, and advances the clock. A child
//! leaves the stack when it waits, and is replayed from its record when it can continue, as after a
//! crash: so parent and children share one clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::Error;
use crate::context::Context;
use crate::function::Entry;
use crate::host::{Local, Outcome};
use crate::log::Level;
use crate::testing::limits;
use crate::testing::protocol::{Answer, Ask};
use crate::testing::scope::{self, Left, Scope, leave, stop};
use crate::testing::state::{Cancel, Phase, State};
use crate::testing::world::{Crashes, World};

/// Maximum number of successors of one execution.
const GENERATIONS_MAX: usize = 10_000;

pub(crate) struct Execution {
    pub(crate) world: Rc<World>,
    pub(crate) entry: Entry,
    pub(crate) state: RefCell<State>,
    input: String,
    identity: ExecutionIdentity,
    track: RefCell<Track>,
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
    pub(crate) parent: Option<Parent>,
    /// Number of its predecessors.
    pub(crate) generation: usize,
    /// Number of workflows above it.
    pub(crate) depth: u32,
}

/// The operation that a child performs.
#[derive(Clone)]
pub(crate) struct Parent {
    /// Index of the parent in the world.
    pub(crate) place: usize,
    pub(crate) promise: u32,
}

/// The record, and the position of the current run in it.
#[derive(Default)]
struct Track {
    record: Vec<(Ask, Answer)>,
    position: usize,
    /// Length of the record at the last crash.
    crashed_at: Option<usize>,
}

impl Execution {
    pub(crate) fn new(
        world: Rc<World>,
        entry: Entry,
        input: String,
        identity: ExecutionIdentity,
        state: State,
    ) -> Rc<Self> {
        Rc::new(Self {
            world,
            entry,
            state: RefCell::new(state),
            input,
            identity,
            track: RefCell::default(),
            has_started: Cell::new(false),
        })
    }

    pub(crate) fn context(&self) -> Context {
        let ExecutionIdentity { key, attempt, .. } = self.identity.clone();
        Context {
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
                .is_some_and(|open| self.answer(&state, open).is_some())
        };
        self.is_child() && !state.is_over && (!self.has_started.get() || can_continue())
    }

    /// Runs the function to its end, through every crash; returns `None` if it is a child that
    /// waits.
    pub(crate) fn run_until_wait(self: &Rc<Self>) -> Option<Outcome> {
        self.has_started.set(true);
        loop {
            self.track.borrow_mut().position = 0;
            match scope::enter(Scope::Workflow(Rc::clone(self)), || {
                (self.entry.run)(&self.input)
            }) {
                Ok(outcome) => {
                    self.require_end();
                    if !self.crashes_here() {
                        return Some(self.end(outcome));
                    }
                }
                Err(Left::Crash) => {}
                Err(Left::Blocked) => return None,
                Err(Left::Ended(error)) => return Some(self.end(Err(error))),
                Err(Left::Stop(error)) => stop(error),
            }
        }
    }

    /// Records the end and cancels the children.
    fn end(&self, outcome: Outcome) -> Outcome {
        let (outcome, children) = {
            let mut state = self.state.borrow_mut();
            state.is_over = true;
            let outcome = match (limits::recorded(outcome), &state.cancel) {
                (Err(error), Cancel::Requested(reason) | Cancel::Reported(reason))
                    if error.is_cancelled() =>
                {
                    Err(cancelled(reason).permanent())
                }
                (outcome, _) => outcome,
            };
            (outcome, children(&state))
        };
        self.cancel(&children, "its parent execution ended");
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
            stop(Error::new("stuck", message).permanent());
        }
        let cancel = match state.cancel {
            Cancel::At(at) => Cancel::At(at),
            Cancel::Never | Cancel::Requested(_) | Cancel::Reported(_) => Cancel::Never,
        };
        let identity = ExecutionIdentity {
            generation,
            ..self.identity.clone()
        };
        let next = State::new(state.mailbox.clone(), cancel);
        Some(Self::new(
            Rc::clone(&self.world),
            self.entry,
            input,
            identity,
            next,
        ))
    }

    /// Reports the outcome to the parent, unless the child has a successor or was abandoned.
    pub(crate) fn report_to_parent(&self, outcome: Outcome) {
        let Some(Parent { place, promise }) = self.identity.parent else {
            return;
        };
        let Some(parent) = self.world.execution(place) else {
            return;
        };
        let successor = self.successor().map(|successor| self.world.add(successor));
        let mut state = parent.state.borrow_mut();
        let own = self.world.place_of(self);
        let Some(performer) = state
            .performer_mut(promise)
            .filter(|place| Some(**place) == own)
        else {
            return;
        };
        match successor {
            Some(place) => *performer = place,
            None if state.is_over => {}
            None => state.end_attempt(promise, outcome, self.world.now()),
        }
    }

    /// Requests cancellation of this execution and its children. Idempotent.
    pub(crate) fn request_cancel(&self, reason: &str) {
        let children = {
            let mut state = self.state.borrow_mut();
            if state.is_over || matches!(state.cancel, Cancel::Requested(_) | Cancel::Reported(_)) {
                return;
            }
            state.cancel = Cancel::Requested(reason.to_owned());
            children(&state)
        };
        self.cancel(&children, reason);
    }

    /// Cancels children. A stub has no cleanup and ends at once.
    pub(crate) fn cancel(&self, children: &[u32], reason: &str) {
        for promise in children {
            let place = self.state.borrow_mut().performer_mut(*promise).copied();
            match place.and_then(|place| self.world.execution(place)) {
                Some(child) => child.request_cancel(reason),
                None => {
                    let outcome = Err(cancelled(reason).permanent());
                    self.state
                        .borrow_mut()
                        .end_attempt(*promise, outcome, self.world.now());
                }
            }
        }
    }

    /// The requests of this execution, for comparison with another run.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.track
            .borrow()
            .record
            .iter()
            .map(|(ask, _)| ask.clone())
            .collect()
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        if !self.replays() {
            self.world.log(level, message);
        }
    }

    pub(crate) fn ask(&self, ask: Ask, local: Local) -> Answer {
        if let Some(answer) = self.recorded(&ask) {
            return answer;
        }
        if ask.waits() && self.crashes_here() {
            leave(Left::Crash);
        }
        let answer = self.perform(&ask, local);
        let mut track = self.track.borrow_mut();
        track.record.push((ask, answer.clone()));
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
        Some(format!("{} would {}", self.entry.name, open.ask))
    }

    fn replays(&self) -> bool {
        let track = self.track.borrow();
        track.position < track.record.len()
    }

    fn recorded(&self, ask: &Ask) -> Option<Answer> {
        let mut track = self.track.borrow_mut();
        let Some((known, answer)) = track.record.get(track.position) else {
            let state = self.state.borrow();
            if let Some(open) = state.open.as_ref().filter(|open| open.ask != *ask) {
                stop(self.differs(track.position, &open.ask, &ask.to_string()));
            }
            return None;
        };
        if known != ask {
            stop(self.differs(track.position, known, &ask.to_string()));
        }
        let answer = answer.clone();
        track.position += 1;
        Some(answer)
    }

    fn require_end(&self) {
        let (track, state) = (self.track.borrow(), self.state.borrow());
        let more = track.record.get(track.position).map(|(ask, _)| ask);
        if let Some(known) = more.or(state.open.as_ref().map(|open| &open.ask)) {
            stop(self.differs(track.position, known, "return"));
        }
    }

    fn differs(&self, position: usize, known: &Ask, now: &str) -> Error {
        let function = self.entry.name;
        let message = format!(
            "{function} is not deterministic: its request {position} was to {known}, and is now to {now}. \
             Take time from now(), randomness from random_u64() and effects from tasks"
        );
        Error::new("nondeterminism", message).permanent()
    }

    /// Whether to crash here: once at each length of the record.
    fn crashes_here(&self) -> bool {
        let mut track = self.track.borrow_mut();
        let here = Some(track.record.len());
        if self.world.crashes == Crashes::Never || track.crashed_at == here {
            return false;
        }
        track.crashed_at = here;
        true
    }
}

/// The operations that children perform, those of stubs included.
fn children(state: &State) -> Vec<u32> {
    let performed = |phase: &Phase, is_workflow: bool| match phase {
        Phase::Child { .. } => true,
        Phase::Runs(..) => is_workflow,
        Phase::Waits(_) | Phase::Over(_) => false,
    };
    let its = state
        .invokes()
        .filter(|(_, invoke)| performed(&invoke.phase, invoke.is_workflow()));
    its.map(|(promise, _)| promise).collect()
}

pub(crate) fn cancelled(reason: &str) -> Error {
    Error::new("cancelled", reason)
}
