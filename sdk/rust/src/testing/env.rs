//! The test environment: setup before a run, inspection afterwards.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::callable::{Callable, InputOf, OutputOf};
use crate::context::CallContext;
use crate::function::{Function, FunctionEntry, Task, Workflow};
use crate::host::Outcome;
use crate::http::{HttpRequest, HttpResponse};
use crate::log::LogLevel;
use crate::payload::{CallArgument, decode, encode};
use crate::promise::decode_outcome;
use crate::testing::attempt::run_attempt_in;
use crate::testing::execution::{ExecutionIdentity, SimulatedExecution};
use crate::testing::limits;
use crate::testing::protocol::HostRequest;
use crate::testing::scope::{self, RunningFunction, RunningTask, UnwindReason};
use crate::testing::simulation::{
    CrashMode, RecordedEffect, START, ScriptedSignal, SignalReceiver, Simulation, TestScript,
};
use crate::testing::state::{CancelState, SimulatedState};
use crate::{Error, Result};

/// Runs workflows in a test: on this thread, without a server, in virtual time.
///
/// Tasks and child workflows without a stub run for real. Every run starts with the same stubs,
/// signals and seed, so two runs are equal; a stub should depend on its input and
/// `call_context().attempt`, not on a counter of its own.
///
/// ```
/// use onward::prelude::*;
/// use onward::testing::TestEnv;
///
/// #[task]
/// fn price(item: String) -> Result<u64> {
///     http(&format!("GET https://shop.example.com/prices/{item}")).send()?.json()
/// }
///
/// #[workflow]
/// fn quote(item: String) -> Result<u64> {
///     sleep(Duration::from_secs(3_600))?;
///     Ok(invoke(price, &item)? + 5)
/// }
///
/// let mut env = TestEnv::new();
/// env.stub(price, |_| Ok(10));
/// assert_eq!(env.crash_everywhere(quote, "tea"), Ok(15));
/// assert_eq!(env.call_count(price), 1);
/// assert_eq!(env.elapsed(), Duration::from_secs(3_600));
/// ```
///
/// Failures, limits and retries are those of a server, with these differences:
///
/// - Backoff has no jitter. After a crash another process takes over at once, without waiting for a
///   lease to expire.
/// - Cancellation reaches a workflow when it waits, never before it has started.
/// - A child is replayed from its beginning after each wait, as after a crash, in
///   [`run`](Self::run) too. It can be sent a signal before it is started.
/// - Executions have ids such as `test` for the workflow and `test.0#1` for the child that is the
///   first attempt of its operation 0; on a server an id is a hash.
/// - A panic ends the test; on a server it is the failure `trap`. An unknown function, a request
///   without a stub, a task that uses an operation of workflows, and a wait that nothing can end
///   fail the test.
/// - Memory, instructions and the length of a journal are not limited.
#[derive(Default)]
pub struct TestEnv {
    script: TestScript,
    last: RunRecord,
}

/// The observations of a run.
#[derive(Default)]
struct RunRecord {
    effects: Vec<RecordedEffect>,
    requests: Vec<HostRequest>,
    log: Vec<(LogLevel, String)>,
    elapsed: Duration,
}

impl TestEnv {
    /// Creates an environment without stubs and signals.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces a function by a stub, which is retried like the function when it fails.
    pub fn stub<F: Callable<A>, A>(
        &mut self,
        _function: F,
        stub: impl Fn(InputOf<F, A>) -> Result<OutputOf<F, A>> + 'static,
    ) {
        let untyped = move |input: &str| encode(&stub(decode(input)?)?);
        self.script
            .stubs
            .insert(F::Function::NAME.to_owned(), Rc::new(untyped));
    }

    /// Stub for calls by name: see [`call_named`](crate::call_named).
    pub fn stub_named<I: DeserializeOwned, O: Serialize>(
        &mut self,
        name: &str,
        stub: impl Fn(I) -> Result<O> + 'static,
    ) {
        let untyped = move |input: &str| encode(&stub(decode(input)?)?);
        self.script.stubs.insert(name.to_owned(), Rc::new(untyped));
    }

    /// Stub for a request, given as `METHOD URL`.
    pub fn stub_http(
        &mut self,
        line: &str,
        stub: impl Fn(&HttpRequest) -> Result<HttpResponse> + 'static,
    ) {
        self.script.http.insert(line.to_owned(), Rc::new(stub));
    }

    /// Sets how long each attempt of the task or stub takes; default: no time. An attempt that
    /// exceeds its timeout fails with `timeout`. Default timeouts: 60 s for a task, none for a
    /// workflow.
    pub fn set_duration<F: Callable<A>, A>(&mut self, _function: F, duration: Duration) {
        self.script
            .durations
            .insert(F::Function::NAME.to_owned(), to_micros(duration));
    }

    /// Sends a signal to the workflow before it starts.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    pub fn signal(&mut self, name: &str, payload: &impl Serialize) {
        self.signal_at(Duration::ZERO, name, payload);
    }

    /// Sends a signal to the workflow after this time.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    pub fn signal_at(&mut self, after: Duration, name: &str, payload: &impl Serialize) {
        self.add_signal(SignalReceiver::Workflow, after, name, payload);
    }

    /// Sends a signal to a child after this time since the start of the workflow. `index` selects
    /// among the children of this function in the order of their start: 0 is the first. Each
    /// attempt is another child.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    pub fn signal_child<F, A>(
        &mut self,
        _child: F,
        index: usize,
        after: Duration,
        name: &str,
        payload: &impl Serialize,
    ) where
        F: Callable<A, Function: Workflow>,
    {
        self.add_signal(
            SignalReceiver::Child(F::Function::NAME, index),
            after,
            name,
            payload,
        );
    }

    #[expect(clippy::panic, reason = "a test ends like this")]
    fn add_signal(
        &mut self,
        to: SignalReceiver,
        after: Duration,
        name: &str,
        payload: &impl Serialize,
    ) {
        let payload = encode(payload).unwrap_or_else(|error| panic!("{error}"));
        self.script.signals.push(ScriptedSignal {
            to,
            at: to_micros(after),
            name: name.to_owned(),
            payload,
        });
        self.script.signals.sort_by_key(|signal| signal.at);
    }

    /// Requests cancellation of the workflow, and so of its children, after this time.
    pub fn cancel_at(&mut self, after: Duration) {
        self.script.cancel_after = Some(to_micros(after));
    }

    /// Simulates a crash and a takeover after this time. Attempts in flight are repeated, or fail
    /// with `in_doubt` if they are at most once. May be repeated.
    pub fn crash_at(&mut self, after: Duration) {
        self.script.crashes_after.push(to_micros(after));
        self.script.crashes_after.sort_unstable();
    }

    /// Sets the seed of random values.
    pub fn set_seed(&mut self, seed: u64) {
        self.script.seed = seed;
    }

    /// Runs a workflow to its end.
    pub fn run<F, A>(
        &mut self,
        _workflow: F,
        input: impl CallArgument<InputOf<F, A>>,
    ) -> Result<OutputOf<F, A>>
    where
        F: Callable<A, Function: Workflow>,
    {
        let input = input.into_payload()?;
        let (outcome, run) =
            self.run_simulation(FunctionEntry::of::<F::Function>(), &input, CrashMode::Never);
        self.last = run;
        decode_outcome(outcome)
    }

    /// Runs a workflow to its end, then again with a crash before every wait and one before the
    /// end: each time it is replayed from the record.
    ///
    /// Fails with `nondeterminism` if its requests differ from the record, or if the two runs
    /// differ in their result or their effects.
    pub fn crash_everywhere<F, A>(
        &mut self,
        _workflow: F,
        input: impl CallArgument<InputOf<F, A>>,
    ) -> Result<OutputOf<F, A>>
    where
        F: Callable<A, Function: Workflow>,
    {
        let (input, entry) = (input.into_payload()?, FunctionEntry::of::<F::Function>());
        let (expected, without_crashes) = self.run_simulation(entry, &input, CrashMode::Never);
        let (outcome, run) = self.run_simulation(entry, &input, CrashMode::Everywhere);
        let difference = find_difference(&without_crashes, &run, &expected, &outcome);
        self.last = run;
        match (outcome, difference) {
            (Err(error), _) if error.has_kind("nondeterminism") => Err(error),
            (_, Some(what)) => {
                Err(Error::new("nondeterminism", format!("{}: {what}", entry.name)).non_retryable())
            }
            (outcome, None) => decode_outcome(outcome),
        }
    }

    /// Runs a single attempt of a task.
    pub fn run_attempt<F, A>(
        &mut self,
        _task: F,
        attempt: u32,
        input: impl CallArgument<InputOf<F, A>>,
    ) -> Result<OutputOf<F, A>>
    where
        F: Callable<A, Function: Task>,
    {
        let (input, entry) = (input.into_payload()?, FunctionEntry::of::<F::Function>());
        limits::check_size("the input", &input)?;
        let simulation = Simulation::new(self.script.clone(), CrashMode::Never);
        let context = CallContext {
            execution: "test".to_owned(),
            idempotency_key: "test.0".to_owned(),
            attempt,
        };
        let scope = RunningTask::new(Rc::clone(&simulation), entry.name, context);
        let outcome = run_until_unwound(|| {
            run_attempt_in(RunningFunction::Task(Rc::new(scope)), || {
                (entry.run)(&input)
            })
        });
        self.last = RunRecord {
            log: simulation.log.take(),
            ..RunRecord::default()
        };
        decode_outcome(limits::recordable_outcome(outcome))
    }

    /// Number of attempts of the function in the last run.
    pub fn call_count<F: Callable<A>, A>(&self, _function: F) -> usize {
        self.effects_of(F::Function::NAME).count()
    }

    /// Input of each attempt of the function in the last run.
    ///
    /// # Panics
    ///
    /// If an input cannot be read back.
    #[expect(clippy::panic, reason = "a test ends like this")]
    pub fn recorded_inputs<F: Callable<A>, A>(&self, _function: F) -> Vec<InputOf<F, A>> {
        let effects = self.effects_of(F::Function::NAME);
        effects
            .map(|effect| decode(&effect.input).unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }

    /// Virtual time that the last run took.
    pub fn elapsed(&self) -> Duration {
        self.last.elapsed
    }

    /// Log messages of the last run.
    pub fn log_messages(&self) -> &[(LogLevel, String)] {
        &self.last.log
    }

    fn effects_of(&self, name: &'static str) -> impl Iterator<Item = &RecordedEffect> {
        self.last
            .effects
            .iter()
            .filter(move |effect| effect.name == name)
    }

    fn run_simulation(
        &self,
        entry: FunctionEntry,
        input: &str,
        crashes: CrashMode,
    ) -> (Outcome, RunRecord) {
        let simulation = Simulation::new(self.script.clone(), crashes);
        let mut run = RunRecord::default();
        let outcome =
            run_until_unwound(|| self.run_generations(&simulation, entry, input, &mut run));
        simulation.drop_executions();
        run.effects = simulation.effects.take();
        run.log = simulation.log.take();
        (outcome, run)
    }

    /// Runs the workflow and its successors.
    fn run_generations(
        &self,
        simulation: &Rc<Simulation>,
        entry: FunctionEntry,
        input: &str,
        run: &mut RunRecord,
    ) -> Outcome {
        limits::check_size("the input", input)?;
        let cancel = self
            .script
            .cancel_after
            .map_or(CancelState::Never, |after| {
                CancelState::At(START.saturating_add(after))
            });
        let state = SimulatedState::new(simulation.signals_for(&SignalReceiver::Workflow), cancel);
        let id = "test".to_owned();
        let identity = ExecutionIdentity {
            id,
            key: String::new(),
            attempt: 1,
            parent: None,
            generation: 0,
            depth: 0,
        };
        let mut execution = SimulatedExecution::new(
            Rc::clone(simulation),
            entry,
            input.to_owned(),
            identity,
            state,
        );
        loop {
            simulation.add_execution(Rc::clone(&execution));
            let outcome = execution.run_until_wait();
            run.requests.extend(execution.requests());
            run.elapsed = Duration::from_micros((simulation.now() - START).unsigned_abs());
            match execution.successor() {
                Some(next) => execution = next,
                None => {
                    simulation.run_children_to_end();
                    return outcome.unwrap_or_else(|| {
                        Err(Error::other("only a child can leave while it waits"))
                    });
                }
            }
        }
    }
}

/// Runs a body; [`scope::fail_test`] inside it determines the outcome.
fn run_until_unwound(body: impl FnOnce() -> Outcome) -> Outcome {
    match scope::catch_unwind_reason(body) {
        Ok(outcome) => outcome,
        Err(UnwindReason::Stop(error)) => Err(error),
        Err(UnwindReason::Crash | UnwindReason::Blocked | UnwindReason::Ended(_)) => {
            Err(Error::other("only a workflow can wait and crash"))
        }
    }
}

fn find_difference(
    without_crashes: &RunRecord,
    run: &RunRecord,
    expected: &Outcome,
    outcome: &Outcome,
) -> Option<String> {
    if expected != outcome {
        return Some(format!(
            "it ended with {expected:?} without crashes, and with {outcome:?} with them"
        ));
    }
    let (first, second) = (
        without_crashes.effects.iter().map(Some),
        run.effects.iter().map(Some),
    );
    let longest = without_crashes.effects.len().max(run.effects.len());
    let pairs = first
        .chain(std::iter::repeat(None))
        .zip(second.chain(std::iter::repeat(None)));
    if let Some((without_crashes, crashed)) = pairs
        .take(longest)
        .find(|(without_crashes, crashed)| without_crashes != crashed)
    {
        return Some(format!(
            "without crashes it performed {without_crashes:?}, with crashes {crashed:?}"
        ));
    }
    (without_crashes.requests != run.requests)
        .then(|| "with crashes its requests differ".to_owned())
}

fn to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}
