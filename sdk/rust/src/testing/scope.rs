//! The function that runs on this thread, and how the environment leaves it: by silent unwinding.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;

use crate::context::Context;
use crate::function::Kind;
use crate::host::Local;
use crate::http::{Request, Response};
use crate::log::Level;
use crate::testing::execution::Execution;
use crate::testing::protocol::{Answer, Ask};
use crate::testing::world::World;
use crate::{Error, Result};

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The running function.
#[derive(Clone)]
pub(crate) enum Scope {
    Workflow(Rc<Execution>),
    Task(Rc<Attempt>),
}

/// One attempt of a task.
pub(crate) struct Attempt {
    pub(crate) world: Rc<World>,
    pub(crate) function: &'static str,
    pub(crate) context: Context,
    /// Number of requests sent so far.
    requests: Cell<u32>,
}

impl Attempt {
    pub(crate) fn new(world: Rc<World>, function: &'static str, context: Context) -> Self {
        Self {
            world,
            function,
            context,
            requests: Cell::new(0),
        }
    }

    /// The idempotency key of the next request: different for each request of an attempt, equal for
    /// every attempt, as in the engine.
    fn request_key(&self) -> String {
        let (count, key) = (self.requests.get() + 1, &self.context.idempotency_key);
        self.requests.set(count);
        if count == 1 {
            key.clone()
        } else {
            format!("{key}/{count}")
        }
    }
}

/// Reason why a function was left before its end; the payload of the unwinding.
pub(crate) enum Left {
    /// A simulated crash.
    Crash,
    /// A child waits.
    Blocked,
    /// The workflow ends with this failure.
    Ended(Error),
    /// The test fails.
    Stop(Error),
}

/// Leaves the running function without output on stderr.
pub(crate) fn leave(why: Left) -> ! {
    panic::resume_unwind(Box::new(why))
}

/// Ends the test with this failure.
pub(crate) fn stop(error: Error) -> ! {
    leave(Left::Stop(error))
}

/// Runs a function in this scope. Catches the unwinding of [`leave`]; a panic of the function
/// propagates.
pub(crate) fn enter<T>(scope: Scope, body: impl FnOnce() -> T) -> Result<T, Left> {
    let _restore = Restore(CURRENT.replace(Some(scope)));
    catch(body)
}

/// Catches the unwinding of [`leave`].
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Left> {
    panic::catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        match payload.downcast::<Left>() {
            Ok(left) => *left,
            Err(panic) => panic::resume_unwind(panic),
        }
    })
}

struct Restore(Option<Scope>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The scope that a host function was called in.
#[expect(clippy::panic, reason = "there is no caller to return an error to")]
pub(crate) fn current() -> Scope {
    match CURRENT.with_borrow(Clone::clone) {
        Some(scope) => scope,
        None => panic!(
            "no test environment runs this function: call it through onward::testing::TestEnv"
        ),
    }
}

impl Scope {
    pub(crate) fn running(&self) -> (&'static str, Kind) {
        match self {
            Self::Workflow(execution) => (execution.entry.name, Kind::Workflow),
            Self::Task(attempt) => (attempt.function, Kind::Task),
        }
    }

    pub(crate) fn own(&self) -> Context {
        match self {
            Self::Workflow(execution) => execution.context(),
            Self::Task(attempt) => attempt.context.clone(),
        }
    }

    pub(crate) fn log(&self, level: Level, message: &str) {
        match self {
            Self::Workflow(execution) => execution.log(level, message),
            Self::Task(attempt) => attempt.world.log(level, message),
        }
    }

    pub(crate) fn ask(&self, ask: Ask, local: Local) -> Answer {
        match (self, ask) {
            (Self::Workflow(execution), ask) => execution.ask(ask, local),
            (Self::Task(attempt), Ask::Now) => Answer::Time(attempt.world.now()),
            (Self::Task(attempt), Ask::Random(length)) => {
                Answer::Random(attempt.world.random(length))
            }
            (Self::Task(attempt), ask) => stop(Error::other(format!(
                "{} is a task: only a workflow can {ask}",
                attempt.function
            ))),
        }
    }

    pub(crate) fn http(&self, request: &Request) -> Result<Response> {
        match self {
            Self::Workflow(execution) => stop(Error::other(format!(
                "{} is a workflow",
                execution.entry.name
            ))),
            Self::Task(attempt) => attempt.world.http(request, &attempt.request_key()),
        }
    }
}
