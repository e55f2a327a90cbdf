//! A minimal engine: one execution, one list of stored events, virtual time, and crashes at chosen
//! points.

use std::collections::BTreeMap;

use onward_base::{Payload, Timestamp};
use onward_execution::{
    AttemptInFlight, Execution, ExecutionEnvironment, ExecutionLimits, ExecutionProgress,
    ExecutionStart, Guest, GuestLogLevel,
};
use onward_journal::{ComponentDigest, Event, ExecutionId, InvokeResult, Journal, JournalEvent};

/// A task: its input and the number of the attempt.
pub(crate) type Task = fn(&Payload, u32) -> InvokeResult;

/// What a test runs.
pub(crate) struct Plan {
    pub(crate) guest: fn() -> Box<dyn Guest>,
    pub(crate) tasks: BTreeMap<&'static str, Task>,
    /// Signals, each sent after this number of stored steps.
    pub(crate) signals: Vec<(usize, &'static str, &'static str)>,
    /// Number of stored steps after which cancellation is requested.
    pub(crate) cancel: Option<usize>,
}

pub(crate) fn plan(guest: fn() -> Box<dyn Guest>, tasks: &[(&'static str, Task)]) -> Plan {
    Plan {
        guest,
        tasks: tasks.iter().copied().collect(),
        signals: Vec::new(),
        cancel: None,
    }
}

/// The outcome of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: InvokeResult,
    pub(crate) events: Vec<JournalEvent>,
    pub(crate) logs: Vec<String>,
    /// Calls of tasks, in order.
    pub(crate) calls: Vec<String>,
    pub(crate) commits: usize,
    pub(crate) crashes: usize,
}

impl Outcome {
    /// The names of the recorded events.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.events
            .iter()
            .map(|recorded| recorded.event.kind().name())
            .collect()
    }
}

/// Virtual time, and entropy that depends only on the number of recorded events, so that every run
/// gets the same.
pub(crate) struct Virtual {
    pub(crate) now: Timestamp,
    pub(crate) logs: Vec<String>,
}

impl ExecutionEnvironment for Virtual {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn fill_entropy(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x2a);
    }

    fn log_message(&mut self, _: GuestLogLevel, message: &str) {
        self.logs.push(message.to_owned());
    }
}

pub(crate) fn id() -> ExecutionId {
    ExecutionId::derive(&digest(), None, "test")
}

fn digest() -> ComponentDigest {
    ComponentDigest::from_component(b"script")
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

pub(crate) fn start() -> Execution {
    let start = ExecutionStart {
        component_digest: digest(),
        input: json("{}"),
        parent: None,
        key: Some("test".into()),
        signals: Vec::new(),
    };
    Execution::start(id(), start, Timestamp::EPOCH, ExecutionLimits::default()).unwrap()
}

/// Where a crash can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    BeforeCommit,
    AfterCommit,
    AfterTask,
}

/// Runs the plan; `crashes` decides at each point whether to crash there.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
pub(crate) fn run(plan: &Plan, mut crashes: impl FnMut(Point, usize) -> bool) -> Outcome {
    let mut stored: Vec<JournalEvent> = Vec::new();
    let mut world = Virtual {
        now: Timestamp::EPOCH.plus_ms(1_000),
        logs: Vec::new(),
    };
    let mut outcome = Outcome {
        result: Ok(Payload::null()),
        events: Vec::new(),
        logs: Vec::new(),
        calls: Vec::new(),
        commits: 0,
        crashes: 0,
    };
    let mut points = 0;
    'life: for life in 0.. {
        assert!(life < 1_000, "it never ends");
        let mut guest = (plan.guest)();
        let mut execution = if stored.is_empty() {
            start()
        } else {
            Execution::recover(
                Journal::recover(id(), stored.clone()).unwrap(),
                ExecutionLimits::default(),
            )
        };
        outcome.crashes = life;
        let mut crash_at = |point| {
            points += 1;
            crashes(point, points)
        };
        loop {
            apply_external_events(plan, &mut execution, &mut world, outcome.commits);
            let progress = execution.run(&mut *guest, &mut world).unwrap();
            assert!(
                !matches!(progress, ExecutionProgress::Diverged(_)),
                "{progress:?}"
            );
            give_up_abandoned(&mut execution, world.now);
            if execution.is_runnable() {
                continue;
            }
            if !execution.is_terminal() {
                for number in execution.startable_operations(world.now) {
                    execution
                        .start_attempt(number, onward_journal::InvokePerformer::Owner, world.now)
                        .unwrap();
                }
            }
            if crash_at(Point::BeforeCommit) {
                continue 'life;
            }
            let fresh = execution.take_events().to_vec();
            if !fresh.is_empty() {
                outcome.commits += 1;
                stored.extend(fresh);
            }
            if crash_at(Point::AfterCommit) {
                continue 'life;
            }
            if let Some(result) = execution.result() {
                outcome.result = result;
                outcome.events = stored;
                outcome.logs = world.logs;
                return outcome;
            }
            let flight = execution.attempts_in_flight().next();
            if let Some(flight) = flight {
                let result = perform(plan, &execution, flight, &mut outcome);
                if crash_at(Point::AfterTask) {
                    continue 'life;
                }
                assert!(
                    execution
                        .end_attempt(flight.number, flight.attempt, result, &mut world)
                        .unwrap()
                );
            } else if let Some(deadline) = execution
                .next_deadline()
                .filter(|_| !has_signal(plan, outcome.commits))
            {
                world.now = world.now.max(deadline);
            }
        }
    }
    unreachable!()
}

fn give_up_abandoned(execution: &mut Execution, now: Timestamp) {
    for number in execution.take_abandoned() {
        let error =
            onward_journal::ExecutionError::new(onward_journal::ErrorKind::Cancelled, "closed");
        execution.give_up_operation(number, error, now).unwrap();
    }
}

fn perform(
    plan: &Plan,
    execution: &Execution,
    flight: AttemptInFlight,
    outcome: &mut Outcome,
) -> InvokeResult {
    let Some(Event::InvokeScheduled {
        function_name,
        input,
        ..
    }) = execution.invocation_event(flight.number)
    else {
        panic!("operation {} is not an invocation", flight.number);
    };
    outcome
        .calls
        .push(format!("{function_name}#{}", flight.attempt));
    plan.tasks[&**function_name](input, flight.attempt)
}

fn has_signal(plan: &Plan, commits: usize) -> bool {
    plan.signals.iter().any(|(at, ..)| *at == commits)
}

/// Applies the external events that are due after this number of commits. They are durable outside,
/// so one that was lost in a crash is applied again.
fn apply_external_events(
    plan: &Plan,
    execution: &mut Execution,
    world: &mut Virtual,
    commits: usize,
) {
    if execution.is_terminal() {
        return;
    }
    execution.fire_due_timers(world.now).unwrap();
    for (place, (at, name, payload)) in plan.signals.iter().enumerate() {
        let delivered = execution
            .journal()
            .events()
            .iter()
            .filter(|it| matches!(it.event, Event::SignalDelivered { .. }));
        if *at <= commits && delivered.count() == place {
            execution
                .deliver_signal(&name.parse().unwrap(), json(payload), world.now)
                .unwrap();
        }
    }
    if plan.cancel.is_some_and(|at| at <= commits) {
        execution
            .request_cancel("requested by the test".into(), world.now)
            .unwrap();
    }
}

/// Runs the plan without a crash.
pub(crate) fn run_without_crash(plan: &Plan) -> Outcome {
    run(plan, |_, _| false)
}
