//! One execution: its record, and the way through it. What is recorded is answered from the record; what is not happens now.

use std::cell::RefCell;
use std::rc::Rc;

use crate::Error;
use crate::context::Context;
use crate::host::{Local, Outcome};
use crate::log::Level;
use crate::testing::protocol::{Answer, Ask};
use crate::testing::scope::{self, Left, Scope, leave, stop};
use crate::testing::state::State;
use crate::testing::world::{Crashes, World};

pub(crate) struct Execution {
    pub(crate) world: Rc<World>,
    pub(crate) function: &'static str,
    pub(crate) state: RefCell<State>,
    id: String,
    key: String,
    track: RefCell<Track>,
}

/// What was asked and answered, and how far this run has come.
#[derive(Default)]
struct Track {
    record: Vec<(Ask, Answer)>,
    position: usize,
    /// How long the record was at the last crash.
    crashed_at: Option<usize>,
}

impl Execution {
    pub(crate) fn new(world: Rc<World>, function: &'static str, id: String, key: String, state: State) -> Rc<Self> {
        Rc::new(Self { world, function, state: RefCell::new(state), id, key, track: RefCell::default() })
    }

    pub(crate) fn context(&self) -> Context {
        Context { execution: self.id.clone(), idempotency_key: self.key.clone(), attempt: 1 }
    }

    /// The name of an operation, as a task sees it.
    pub(crate) fn key_of(&self, operation: u32) -> String {
        format!("{}.{operation}", self.id)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Runs the function to its end, through every crash on the way.
    pub(crate) fn run(self: &Rc<Self>, body: fn(&str) -> Outcome, input: &str) -> Outcome {
        loop {
            self.track.borrow_mut().position = 0;
            match scope::enter(Scope::Workflow(Rc::clone(self)), || body(input)) {
                Ok(outcome) => {
                    self.require_end();
                    if !self.crashes_here() {
                        return outcome;
                    }
                }
                Err(Left::Crash) => {}
                Err(Left::Stop(error)) => stop(error),
            }
        }
    }

    /// What was asked, for comparison with another run.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.track.borrow().record.iter().map(|(ask, _)| ask.clone()).collect()
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

    fn replays(&self) -> bool {
        let track = self.track.borrow();
        track.position < track.record.len()
    }

    fn recorded(&self, ask: &Ask) -> Option<Answer> {
        let mut track = self.track.borrow_mut();
        let (known, answer) = track.record.get(track.position)?;
        if known != ask {
            stop(self.differs(track.position, known, &ask.to_string()));
        }
        let answer = answer.clone();
        track.position += 1;
        Some(answer)
    }

    fn require_end(&self) {
        let track = self.track.borrow();
        if let Some((known, _)) = track.record.get(track.position) {
            stop(self.differs(track.position, known, "return"));
        }
    }

    fn differs(&self, position: usize, known: &Ask, now: &str) -> Error {
        let function = self.function;
        let message = format!(
            "{function} does not repeat itself: its question {position} was to {known}, and is now to {now}. \
             What decides must be recorded: time from now(), randomness from random_u64(), effects from tasks"
        );
        Error::new("nondeterminism", message).permanent()
    }

    /// Once at each length of the record.
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
