//! What the executions of one test share: stubs, entropy, and what was seen to happen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::Outcome;
use crate::http::{Request, Response};
use crate::log::Level;
use crate::testing::scope::stop;
use crate::{Error, Result};

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
    pub(crate) seed: u64,
}

/// A signal and when it comes, in microseconds: from the start in a script, since 1970 in a mailbox.
#[derive(Clone)]
pub(crate) struct Signal {
    pub(crate) at: i64,
    pub(crate) name: String,
    pub(crate) payload: String,
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
    entropy: Cell<u64>,
}

/// When workflows crash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crashes {
    Never,
    /// Before every wait, and once before the end.
    Everywhere,
}

impl World {
    pub(crate) fn new(script: Script, crashes: Crashes) -> Rc<Self> {
        let entropy = Cell::new(script.seed);
        Rc::new(Self { script, crashes, effects: RefCell::default(), log: RefCell::default(), entropy })
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

    pub(crate) fn http(&self, request: &Request) -> Result<Response> {
        let line = format!("{} {}", request.method, request.url);
        match self.script.http.get(&line) {
            Some(stub) => stub(request),
            None => stop(Error::other(format!("nobody answers {line}: add TestEnv::http(\"{line}\", …)"))),
        }
    }
}
