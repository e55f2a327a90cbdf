//! What the executions of one test share: stubs, the clock, entropy, and what was seen to happen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::Outcome;
use crate::http::{Request, Response};
use crate::log::Level;
use crate::testing::execution::Execution;
use crate::testing::limits;
use crate::testing::scope::stop;
use crate::{Error, Result};

/// When every test begins: 2026-01-01.
pub(crate) const START: i64 = 1_767_225_600_000_000;

/// What children may still do after the workflow has ended: one that does not stop when it is asked
/// to would otherwise never end a test.
const LAST_EVENTS_MAX: usize = 10_000;

pub(crate) type Stub = Rc<dyn Fn(&str) -> Outcome>;
pub(crate) type HttpStub = Rc<dyn Fn(&Request) -> Result<Response>>;

/// What a test says before it runs a workflow.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) stubs: BTreeMap<String, Stub>,
    pub(crate) http: BTreeMap<String, HttpStub>,
    /// In microseconds.
    pub(crate) durations: BTreeMap<String, i64>,
    pub(crate) signals: Vec<Signal>,
    /// In microseconds from the start.
    pub(crate) cancel_after: Option<i64>,
    /// In microseconds from the start, the earliest first.
    pub(crate) crashes_after: Vec<i64>,
    pub(crate) seed: u64,
}

/// A signal, whose it is, and when it comes.
#[derive(Clone)]
pub(crate) struct Signal {
    pub(crate) to: To,
    /// In microseconds: from the start in a script, since 1970 in a mailbox.
    pub(crate) at: i64,
    pub(crate) name: String,
    pub(crate) payload: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum To {
    Workflow,
    /// The child of this name that was started after so many others of the name.
    Child(&'static str, usize),
}

/// An attempt of a task, a child or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) name: String,
    pub(crate) input: String,
    pub(crate) attempt: u32,
}

pub(crate) struct World {
    pub(crate) script: Script,
    pub(crate) crashes: Crashes,
    pub(crate) effects: RefCell<Vec<Effect>>,
    pub(crate) log: RefCell<Vec<(Level, String)>>,
    /// Microseconds since 1970.
    now: Cell<i64>,
    entropy: Cell<u64>,
    /// In the order of their start; those that are over stay, so that places stay.
    executions: RefCell<Vec<Rc<Execution>>>,
    /// How many children of each name were started.
    children: RefCell<BTreeMap<&'static str, usize>>,
    /// How many crashes of the script have happened.
    crashed: Cell<usize>,
}

/// When workflows crash, besides the crashes of the script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crashes {
    Never,
    /// Before every wait, and once before the end.
    Everywhere,
}

impl World {
    pub(crate) fn new(script: Script, crashes: Crashes) -> Rc<Self> {
        Rc::new(Self {
            entropy: Cell::new(script.seed),
            script,
            crashes,
            effects: RefCell::default(),
            log: RefCell::default(),
            now: Cell::new(START),
            executions: RefCell::default(),
            children: RefCell::default(),
            crashed: Cell::new(0),
        })
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.get()
    }

    pub(crate) fn crashed(&self) -> usize {
        self.crashed.get()
    }

    /// Adds an execution, and returns its place.
    pub(crate) fn add(&self, execution: Rc<Execution>) -> usize {
        let mut executions = self.executions.borrow_mut();
        executions.push(execution);
        executions.len() - 1
    }

    pub(crate) fn execution(&self, place: usize) -> Option<Rc<Execution>> {
        self.executions.borrow().get(place).cloned()
    }

    pub(crate) fn place_of(&self, execution: &Execution) -> Option<usize> {
        self.executions
            .borrow()
            .iter()
            .position(|known| std::ptr::eq(&raw const **known, execution))
    }

    /// Executions know the world, and it knows them: one has to let go.
    pub(crate) fn let_go(&self) {
        self.executions.take();
    }

    /// The signals of the workflow, or of a child.
    pub(crate) fn mailbox(&self, to: &To) -> Vec<Signal> {
        let its = self.script.signals.iter().filter(|signal| signal.to == *to);
        its.map(|signal| Signal {
            at: START.saturating_add(signal.at),
            ..signal.clone()
        })
        .collect()
    }

    /// The signals of the next child of this name.
    pub(crate) fn child_mailbox(&self, name: &'static str) -> Vec<Signal> {
        let mut children = self.children.borrow_mut();
        let count = children.entry(name).or_default();
        let mailbox = self.mailbox(&To::Child(name, *count));
        *count += 1;
        mailbox
    }

    /// Lets the next thing happen, and children go on. Tells whether there was one.
    pub(crate) fn advance(&self) -> bool {
        let executions = self.executions.borrow().clone();
        let events = executions.iter().filter_map(|execution| {
            let (at, event) = execution.state.borrow().next_event(self.now())?;
            Some((at, execution, event))
        });
        // min_by_key keeps the first of equals.
        let Some((at, execution, event)) = events.min_by_key(|(at, ..)| *at) else {
            return false;
        };
        let crash = self
            .script
            .crashes_after
            .get(self.crashed())
            .map(|after| START.saturating_add(*after));
        match crash.filter(|crash| *crash <= at) {
            Some(crash) => self.crash(crash, &executions),
            None => {
                self.now.set(at.max(self.now()));
                execution.happen(event);
            }
        }
        self.settle();
        true
    }

    /// The process dies and another takes over: whoever was run is run again, and so is what was
    /// under way.
    fn crash(&self, at: i64, executions: &[Rc<Execution>]) {
        self.now.set(at.max(self.now()));
        self.crashed.set(self.crashed() + 1);
        for execution in executions {
            execution.lose_attempts();
        }
    }

    /// Lets children run until all of them wait or are over.
    fn settle(&self) {
        loop {
            let next = self
                .executions
                .borrow()
                .iter()
                .find(|execution| execution.is_child_with_something_to_do())
                .cloned();
            let Some(child) = next else { return };
            if let Some(outcome) = child.go() {
                child.tell_parent(outcome);
            }
        }
    }

    /// Lets children that were asked to stop come to their end.
    pub(crate) fn wind_up(&self) {
        self.settle();
        for _ in 0..LAST_EVENTS_MAX {
            if !self.advance() {
                return;
            }
        }
    }

    /// What children wait for, for whoever wonders why nothing happens.
    pub(crate) fn waiting_children(&self) -> Vec<String> {
        self.executions
            .borrow()
            .iter()
            .filter_map(|execution| execution.waiting_child())
            .collect()
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        self.log.borrow_mut().push((level, message.to_owned()));
    }

    pub(crate) fn random(&self, length: u32) -> Vec<u8> {
        (0..length).map(|_| self.draw()).collect()
    }

    /// The top byte of splitmix64.
    fn draw(&self) -> u8 {
        let state = self.entropy.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.entropy.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 56) as u8
    }

    /// Sends a request. Like the engine, it adds the key if the headers have none.
    pub(crate) fn http(&self, request: &Request, idempotency_key: &str) -> Result<Response> {
        let mut request = request.clone();
        if !request
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"))
        {
            request
                .headers
                .push(("idempotency-key".to_owned(), idempotency_key.to_owned()));
        }
        let headers: usize = request
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        limits::http_fits(
            "request",
            request.url.len() + headers + request.body.as_ref().map_or(0, Vec::len),
        )?;
        let line = format!("{} {}", request.method, request.url);
        let Some(stub) = self.script.http.get(&line) else {
            stop(Error::other(format!(
                "nobody answers {line}: add TestEnv::http(\"{line}\", …)"
            )))
        };
        let response = stub(&request)?;
        limits::http_fits("response", response.body.len())?;
        Ok(response)
    }
}
