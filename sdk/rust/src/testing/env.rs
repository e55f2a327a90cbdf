//! The environment that a test sets up and asks afterwards.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::context::Context;
use crate::function::{Entry, Function, Task, Workflow};
use crate::host::Outcome;
use crate::http::{Request, Response};
use crate::log::Level;
use crate::payload::{Argument, decode, encode};
use crate::promise::typed;
use crate::testing::attempt::inside;
use crate::testing::execution::Execution;
use crate::testing::protocol::Ask;
use crate::testing::scope::{self, Attempt, Left, Scope};
use crate::testing::state::{Cancel, State};
use crate::testing::world::{Crashes, Effect, Script, Signal, World};
use crate::{Error, Result};

/// When every test begins: 2026-01-01.
const START: i64 = 1_767_225_600_000_000;

/// More than a test can mean.
const GENERATIONS_MAX: usize = 10_000;

/// Runs workflows in a test: on this thread, without a server, in virtual time.
///
/// Tasks that have no stub run for real, and so do child workflows. Every run starts anew with the same stubs, signals and
/// seed, so two runs do the same; let a stub depend on its input and `own().attempt`, not on a count of its own.
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
///     Ok(invoke::<price>(&item)? + 5)
/// }
///
/// let mut env = TestEnv::new();
/// env.stub::<price>(|_| Ok(10));
/// assert_eq!(env.crash_everywhere::<quote>("tea"), Ok(15));
/// assert_eq!(env.calls::<price>(), 1);
/// assert_eq!(env.elapsed(), Duration::from_secs(3_600));
/// ```
#[derive(Default)]
pub struct TestEnv {
    script: Script,
    last: Run,
}

/// What was seen in a run.
#[derive(Default)]
struct Run {
    effects: Vec<Effect>,
    asked: Vec<Ask>,
    log: Vec<(Level, String)>,
    elapsed: Duration,
}

impl TestEnv {
    /// An environment without stubs and signals.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has this answer instead of the function. It is retried like the function when it fails.
    pub fn stub<F: Function>(&mut self, stub: impl Fn(F::Input) -> Result<F::Output> + 'static) {
        let untyped = move |input: &str| encode(&stub(decode(input)?)?);
        self.script.stubs.insert(F::NAME.to_owned(), Rc::new(untyped));
    }

    /// Has this answer a request, named as `METHOD URL`.
    pub fn http(&mut self, line: &str, stub: impl Fn(&Request) -> Result<Response> + 'static) {
        self.script.http.insert(line.to_owned(), Rc::new(stub));
    }

    /// How long each attempt of the function takes; nothing unless said.
    pub fn takes<F: Function>(&mut self, duration: Duration) {
        self.script.durations.insert(F::NAME.to_owned(), micros(duration));
    }

    /// Sends a signal to the workflow before it starts.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    pub fn signal(&mut self, name: &str, payload: &impl Serialize) {
        self.signal_at(Duration::ZERO, name, payload);
    }

    /// Sends a signal to the workflow when it has run for so long.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    #[expect(clippy::panic, reason = "a test ends like this")]
    pub fn signal_at(&mut self, after: Duration, name: &str, payload: &impl Serialize) {
        let payload = encode(payload).unwrap_or_else(|error| panic!("{error}"));
        self.script.signals.push(Signal { at: micros(after), name: name.to_owned(), payload });
        self.script.signals.sort_by_key(|signal| signal.at);
    }

    /// Asks for cancellation when the workflow has run for so long.
    pub fn cancel_at(&mut self, after: Duration) {
        self.script.cancel_after = Some(micros(after));
    }

    /// Where randomness begins.
    pub fn seed(&mut self, seed: u64) {
        self.script.seed = seed;
    }

    /// Runs a workflow to its end.
    pub fn run<F: Workflow>(&mut self, input: impl Argument<F::Input>) -> Result<F::Output> {
        let input = input.into_payload()?;
        let (outcome, run) = self.simulate(Entry::of::<F>(), &input, Crashes::Never);
        self.last = run;
        typed(outcome)
    }

    /// Runs a workflow to its end, then again with a crash before every wait and one before the end: each time it starts
    /// from the beginning and is answered from the record.
    ///
    /// Fails with `nondeterminism` if it then asks for something else than is recorded, or if the two runs differ in their
    /// result or in what they had done.
    pub fn crash_everywhere<F: Workflow>(&mut self, input: impl Argument<F::Input>) -> Result<F::Output> {
        let input = input.into_payload()?;
        let (expected, calm) = self.simulate(Entry::of::<F>(), &input, Crashes::Never);
        let (outcome, run) = self.simulate(Entry::of::<F>(), &input, Crashes::Everywhere);
        let difference = difference(&calm, &run, &expected, &outcome);
        self.last = run;
        match (outcome, difference) {
            (Err(error), _) if error.is("nondeterminism") => Err(error),
            (_, Some(what)) => Err(Error::new("nondeterminism", format!("{}: {what}", F::NAME)).permanent()),
            (outcome, None) => typed(outcome),
        }
    }

    /// Runs one attempt of a task by itself.
    pub fn attempt<F: Task>(&mut self, attempt: u32, input: impl Argument<F::Input>) -> Result<F::Output> {
        let input = input.into_payload()?;
        let world = World::new(self.script.clone(), Crashes::Never);
        let context = Context { execution: "test".to_owned(), idempotency_key: "test.0".to_owned(), attempt };
        let scope = Attempt { world: Rc::clone(&world), function: F::NAME, context, now: START };
        let outcome = leaving(|| inside(Scope::Task(Rc::new(scope)), || (Entry::of::<F>().run)(&input)));
        self.last = Run { log: world.log.take(), ..Run::default() };
        typed(outcome)
    }

    /// How many attempts of the function there were in the last run.
    pub fn calls<F: Function>(&self) -> usize {
        self.effects::<F>().count()
    }

    /// What each attempt of the function was called with in the last run.
    ///
    /// # Panics
    ///
    /// If an input cannot be read back.
    #[expect(clippy::panic, reason = "a test ends like this")]
    pub fn inputs<F: Function>(&self) -> Vec<F::Input> {
        self.effects::<F>().map(|effect| decode(&effect.input).unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    /// How much virtual time the last run took.
    pub fn elapsed(&self) -> Duration {
        self.last.elapsed
    }

    /// What was said in the last run.
    pub fn log(&self) -> &[(Level, String)] {
        &self.last.log
    }

    fn effects<F: Function>(&self) -> impl Iterator<Item = &Effect> {
        self.last.effects.iter().filter(|effect| effect.name == F::NAME)
    }

    fn simulate(&self, entry: Entry, input: &str, crashes: Crashes) -> (Outcome, Run) {
        let world = World::new(self.script.clone(), crashes);
        let mut run = Run::default();
        let outcome = leaving(|| self.generations(&world, entry, input, &mut run));
        run.effects = world.effects.take();
        run.log = world.log.take();
        (outcome, run)
    }

    /// The workflow, and those that it continues as.
    fn generations(&self, world: &Rc<World>, entry: Entry, input: &str, run: &mut Run) -> Outcome {
        let mut input = input.to_owned();
        let signals = self.script.signals.iter().map(|signal| Signal { at: START + signal.at, ..signal.clone() });
        let cancel = self.script.cancel_after.map_or(Cancel::Never, |after| Cancel::At(START + after));
        let mut state = State::new(START, signals.collect(), cancel);
        for _ in 0..GENERATIONS_MAX {
            let execution = Execution::new(Rc::clone(world), entry.name, "test".to_owned(), String::new(), state);
            let outcome = execution.run(entry.run, &input);
            run.asked.extend(execution.asked());
            let ended = execution.state.borrow();
            run.elapsed = Duration::from_micros((ended.now - START).unsigned_abs());
            let Some(next) = &ended.continued else { return outcome };
            input.clone_from(next);
            state = State::new(ended.now, ended.mailbox.clone(), ended.cancel);
        }
        let message = format!("{} continued as new {GENERATIONS_MAX} times", entry.name);
        Err(Error::new("stuck", message).permanent())
    }
}

/// What [`scope::stop`] said inside is the outcome.
fn leaving(body: impl FnOnce() -> Outcome) -> Outcome {
    match scope::catch(body) {
        Ok(outcome) => outcome,
        Err(Left::Stop(error)) => Err(error),
        Err(Left::Crash) => Err(Error::other("a crash was asked for outside of a workflow")),
    }
}

fn difference(calm: &Run, run: &Run, expected: &Outcome, outcome: &Outcome) -> Option<String> {
    if expected != outcome {
        return Some(format!("it ended with {expected:?} without crashes, and with {outcome:?} with them"));
    }
    let (first, second) = (calm.effects.iter().map(Some), run.effects.iter().map(Some));
    let longest = calm.effects.len().max(run.effects.len());
    let pairs = first.chain(std::iter::repeat(None)).zip(second.chain(std::iter::repeat(None)));
    if let Some((calm, crashed)) = pairs.take(longest).find(|(calm, crashed)| calm != crashed) {
        return Some(format!("without crashes it had {calm:?} done, with them {crashed:?}"));
    }
    (calm.asked != run.asked).then(|| "with crashes it asked for other things than without".to_owned())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2)
}
