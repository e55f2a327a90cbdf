//! State that the executions of one test share: stubs, the clock, entropy, and recorded effects.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::Outcome;
use crate::http::{HttpRequest, HttpResponse};
use crate::log::LogLevel;
use crate::testing::execution::SimulatedExecution;
use crate::testing::limits;
use crate::testing::scope::fail_test;
use crate::{Error, Result};

/// Start time of every test: 2026-01-01.
pub(crate) const START: i64 = 1_767_225_600_000_000;

/// Maximum number of events of children after the workflow has ended: a child that ignores its
/// cancellation must not run a test forever.
const LAST_EVENTS_MAX: usize = 10_000;

pub(crate) type Stub = Rc<dyn Fn(&str) -> Outcome>;
pub(crate) type HttpStub = Rc<dyn Fn(&HttpRequest) -> Result<HttpResponse>>;

/// The setup of a test.
#[derive(Clone, Default)]
pub(crate) struct TestScript {
    pub(crate) stubs: BTreeMap<String, Stub>,
    pub(crate) http: BTreeMap<String, HttpStub>,
    /// In microseconds.
    pub(crate) durations: BTreeMap<String, i64>,
    pub(crate) signals: Vec<ScriptedSignal>,
    /// In microseconds from the start.
    pub(crate) cancel_after: Option<i64>,
    /// In microseconds from the start, the earliest first.
    pub(crate) crashes_after: Vec<i64>,
    pub(crate) seed: u64,
}

/// A signal, its receiver, and its time.
#[derive(Clone)]
pub(crate) struct ScriptedSignal {
    pub(crate) to: SignalReceiver,
    /// In microseconds: from the start in a script, since 1970 in a mailbox.
    pub(crate) at: i64,
    pub(crate) name: String,
    pub(crate) payload: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SignalReceiver {
    Workflow,
    /// A child by function name, and the number of children of that name started before.
    Child(&'static str, usize),
}

/// An attempt of a task, a child or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedEffect {
    pub(crate) name: String,
    pub(crate) input: String,
    pub(crate) attempt: u32,
}

pub(crate) struct Simulation {
    pub(crate) script: TestScript,
    pub(crate) crashes: CrashMode,
    pub(crate) effects: RefCell<Vec<RecordedEffect>>,
    pub(crate) log: RefCell<Vec<(LogLevel, String)>>,
    /// Microseconds since 1970.
    now: Cell<i64>,
    entropy: Cell<u64>,
    /// In the order of their start; ended executions stay, so that indexes remain valid.
    executions: RefCell<Vec<Rc<SimulatedExecution>>>,
    /// Number of children started, by name.
    children: RefCell<BTreeMap<&'static str, usize>>,
    /// Number of crashes of the script so far.
    crashed: Cell<usize>,
}

/// Crashes besides those of the script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashMode {
    Never,
    /// Before every wait, and once before the end.
    Everywhere,
}

impl Simulation {
    pub(crate) fn new(script: TestScript, crashes: CrashMode) -> Rc<Self> {
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

    pub(crate) fn crash_count(&self) -> usize {
        self.crashed.get()
    }

    /// Adds an execution and returns its index.
    pub(crate) fn add_execution(&self, execution: Rc<SimulatedExecution>) -> usize {
        let mut executions = self.executions.borrow_mut();
        executions.push(execution);
        executions.len() - 1
    }

    pub(crate) fn execution_at(&self, index: usize) -> Option<Rc<SimulatedExecution>> {
        self.executions.borrow().get(index).cloned()
    }

    pub(crate) fn index_of(&self, execution: &SimulatedExecution) -> Option<usize> {
        self.executions
            .borrow()
            .iter()
            .position(|known| std::ptr::eq(&raw const **known, execution))
    }

    /// Drops the executions, to break the reference cycle between them and the simulation.
    pub(crate) fn drop_executions(&self) {
        self.executions.take();
    }

    /// The signals of the workflow, or of a child.
    pub(crate) fn signals_for(&self, to: &SignalReceiver) -> Vec<ScriptedSignal> {
        let its = self.script.signals.iter().filter(|signal| signal.to == *to);
        its.map(|signal| ScriptedSignal {
            at: START.saturating_add(signal.at),
            ..signal.clone()
        })
        .collect()
    }

    /// The signals of the next child of this name.
    pub(crate) fn signals_for_next_child(&self, name: &'static str) -> Vec<ScriptedSignal> {
        let mut children = self.children.borrow_mut();
        let count = children.entry(name).or_default();
        let mailbox = self.signals_for(&SignalReceiver::Child(name, *count));
        *count += 1;
        mailbox
    }

    /// Applies the next event and runs children that can continue. Returns `false` if there was no
    /// event.
    pub(crate) fn apply_next_event(&self) -> bool {
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
            .get(self.crash_count())
            .map(|after| START.saturating_add(*after));
        match crash.filter(|crash| *crash <= at) {
            Some(crash) => self.simulate_crash(crash, &executions),
            None => {
                self.now.set(at.max(self.now()));
                execution.apply_event(event);
            }
        }
        self.run_ready_children();
        true
    }

    /// Simulates a crash and a takeover: executions are replayed, and attempts in flight are
    /// handled by their delivery guarantee.
    fn simulate_crash(&self, at: i64, executions: &[Rc<SimulatedExecution>]) {
        self.now.set(at.max(self.now()));
        self.crashed.set(self.crash_count() + 1);
        for execution in executions {
            execution.lose_attempts();
        }
    }

    /// Runs children until all of them wait or have ended.
    fn run_ready_children(&self) {
        loop {
            let next = self
                .executions
                .borrow()
                .iter()
                .find(|execution| execution.is_runnable_child())
                .cloned();
            let Some(child) = next else { return };
            if let Some(outcome) = child.run_until_wait() {
                child.report_to_parent(outcome);
            }
        }
    }

    /// Runs cancelled children to their end.
    pub(crate) fn run_children_to_end(&self) {
        self.run_ready_children();
        for _ in 0..LAST_EVENTS_MAX {
            if !self.apply_next_event() {
                return;
            }
        }
    }

    /// Descriptions of what children wait for, for the message about a stuck test.
    pub(crate) fn waiting_children(&self) -> Vec<String> {
        self.executions
            .borrow()
            .iter()
            .filter_map(|execution| execution.waiting_child())
            .collect()
    }

    pub(crate) fn add_log_message(&self, level: LogLevel, message: &str) {
        self.log.borrow_mut().push((level, message.to_owned()));
    }

    pub(crate) fn random_bytes(&self, length: u32) -> Vec<u8> {
        (0..length).map(|_| self.random_byte()).collect()
    }

    /// The top byte of splitmix64.
    fn random_byte(&self) -> u8 {
        let state = self.entropy.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.entropy.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 56) as u8
    }

    /// Sends a request. Like the engine, it adds the key if the headers have none.
    pub(crate) fn send_request(
        &self,
        request: &HttpRequest,
        idempotency_key: &str,
    ) -> Result<HttpResponse> {
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
        limits::check_http_size(
            "request",
            request.url.len() + headers + request.body.as_ref().map_or(0, Vec::len),
        )?;
        let line = format!("{} {}", request.method, request.url);
        let Some(stub) = self.script.http.get(&line) else {
            fail_test(Error::other(format!(
                "no stub for {line}: add TestEnv::stub_http(\"{line}\", …)"
            )))
        };
        let response = stub(&request)?;
        limits::check_http_size("response", response.body.len())?;
        Ok(response)
    }
}
