//! The function that runs on this thread, and how the environment leaves it: by silent unwinding.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;

use crate::context::CallContext;
use crate::function::FunctionKind;
use crate::host::LocalFunction;
use crate::http::{HttpRequest, HttpResponse};
use crate::log::LogLevel;
use crate::testing::execution::SimulatedExecution;
use crate::testing::protocol::{HostAnswer, HostRequest};
use crate::testing::simulation::Simulation;
use crate::{Error, Result};

thread_local! {
    static CURRENT: RefCell<Option<RunningFunction>> = const { RefCell::new(None) };
}

/// The running function.
#[derive(Clone)]
pub(crate) enum RunningFunction {
    Workflow(Rc<SimulatedExecution>),
    Task(Rc<RunningTask>),
}

/// One attempt of a task.
pub(crate) struct RunningTask {
    pub(crate) simulation: Rc<Simulation>,
    pub(crate) function: &'static str,
    pub(crate) context: CallContext,
    /// Number of requests sent so far.
    requests: Cell<u32>,
}

impl RunningTask {
    pub(crate) fn new(
        simulation: Rc<Simulation>,
        function: &'static str,
        context: CallContext,
    ) -> Self {
        Self {
            simulation,
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
pub(crate) enum UnwindReason {
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
pub(crate) fn unwind(why: UnwindReason) -> ! {
    panic::resume_unwind(Box::new(why))
}

/// Ends the test with this failure.
pub(crate) fn fail_test(error: Error) -> ! {
    unwind(UnwindReason::Stop(error))
}

/// Runs a function in this scope. Catches the unwinding of [`unwind`]; a panic of the function
/// propagates.
pub(crate) fn run_in<T>(
    scope: RunningFunction,
    body: impl FnOnce() -> T,
) -> Result<T, UnwindReason> {
    let _restore = RestoreRunning(CURRENT.replace(Some(scope)));
    catch_unwind_reason(body)
}

/// Catches the unwinding of [`unwind`].
pub(crate) fn catch_unwind_reason<T>(body: impl FnOnce() -> T) -> Result<T, UnwindReason> {
    panic::catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        match payload.downcast::<UnwindReason>() {
            Ok(left) => *left,
            Err(panic) => panic::resume_unwind(panic),
        }
    })
}

struct RestoreRunning(Option<RunningFunction>);

impl Drop for RestoreRunning {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The scope that a host function was called in.
#[expect(clippy::panic, reason = "there is no caller to return an error to")]
pub(crate) fn current_function() -> RunningFunction {
    match CURRENT.with_borrow(Clone::clone) {
        Some(scope) => scope,
        None => panic!(
            "no test environment runs this function: call it through onward::testing::TestEnv"
        ),
    }
}

impl RunningFunction {
    pub(crate) fn name_and_kind(&self) -> (&'static str, FunctionKind) {
        match self {
            Self::Workflow(execution) => (execution.entry.name, FunctionKind::Workflow),
            Self::Task(attempt) => (attempt.function, FunctionKind::Task),
        }
    }

    pub(crate) fn call_context(&self) -> CallContext {
        match self {
            Self::Workflow(execution) => execution.call_context(),
            Self::Task(attempt) => attempt.context.clone(),
        }
    }

    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        match self {
            Self::Workflow(execution) => execution.log(level, message),
            Self::Task(attempt) => attempt.simulation.add_log_message(level, message),
        }
    }

    pub(crate) fn request(&self, request: HostRequest, local: LocalFunction) -> HostAnswer {
        match (self, request) {
            (Self::Workflow(execution), request) => execution.request(request, local),
            (Self::Task(attempt), HostRequest::Now) => HostAnswer::Time(attempt.simulation.now()),
            (Self::Task(attempt), HostRequest::Random(length)) => {
                HostAnswer::Random(attempt.simulation.random_bytes(length))
            }
            (Self::Task(attempt), request) => fail_test(Error::other(format!(
                "{} is a task: only a workflow can {request}",
                attempt.function
            ))),
        }
    }

    pub(crate) fn http(&self, request: &HttpRequest) -> Result<HttpResponse> {
        match self {
            Self::Workflow(execution) => fail_test(Error::other(format!(
                "{} is a workflow",
                execution.entry.name
            ))),
            Self::Task(attempt) => attempt
                .simulation
                .send_request(request, &attempt.request_key()),
        }
    }
}
