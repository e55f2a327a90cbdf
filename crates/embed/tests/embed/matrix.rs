//! Every workflow of the examples, crashed at every relevant moment, on every store: the result
//! must equal that of a run without a crash.
//!
//! The moments are those around each commit of a step and around each task, found by counting: the
//! n-th of a moment is tried for n = 1, 2, 3 … until a run does not come that far. Around leases it
//! is enough to crash one workflow. Two crashes in a row are tried for a sample, where the second
//! comes with the first step after the takeover; `ONWARD_MATRIX=full` tries all.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use onward_testing::{ClusterDurability, PostgresCluster};

use crate::account::Account;
use crate::faults::{Moment, Point};
use crate::scenario::{AT_MOST_ONCE, SCENARIOS, Scenario};
use crate::world::{Outcome, Place, World};

/// Number of concurrent runs, which mostly wait.
const AT_ONCE: usize = 8;

/// More moments of one kind than any workflow has.
const FAR: usize = 200;

/// Claims and first renewals of the eight shards.
const LEASES: usize = 16;

/// A scenario, where it is crashed, and where its next process is.
struct Job {
    scenario: Scenario,
    moment: Moment,
    again: Option<Moment>,
}

/// The account of a run without a crash.
struct BaselineAccount {
    account: Account,
    steps: usize,
    tasks: usize,
}

impl BaselineAccount {
    fn of(world: &World, scenario: &Scenario) -> Self {
        let Outcome {
            account,
            ledger,
            last: (steps, tasks),
            ..
        } = world.run(scenario, &[]);
        assert!(
            ledger.performed().values().all(|times| *times == 1),
            "{}: nothing is done twice",
            scenario.name
        );
        Self {
            account,
            steps,
            tasks,
        }
    }
}

/// State that the tests of a store share.
struct Matrix {
    /// Interval of the moments at which a second crash is tried.
    stride: usize,
    baseline: Vec<OnceLock<BaselineAccount>>,
    jobs: Vec<Job>,
    next: AtomicUsize,
    points: AtomicUsize,
    double: AtomicUsize,
}

fn jobs() -> Vec<Job> {
    let moments = [
        Moment::BeforeStep,
        Moment::AfterStep,
        Moment::BeforeTask,
        Moment::AfterTask,
    ];
    let once = SCENARIOS.into_iter().flat_map(move |scenario| {
        moments.map(|moment| Job {
            scenario,
            moment,
            again: None,
        })
    });
    let twice = SCENARIOS.into_iter().flat_map(|scenario| {
        [
            (Moment::AfterStep, Moment::BeforeStep),
            (Moment::BeforeStep, Moment::AfterStep),
        ]
        .map(|(moment, again)| Job {
            scenario,
            moment,
            again: Some(again),
        })
    });
    let chain = *SCENARIOS
        .iter()
        .find(|scenario| scenario.name == "chain")
        .unwrap();
    let leases = [Moment::BeforeLease, Moment::AfterLease].map(|moment| Job {
        scenario: chain,
        moment,
        again: None,
    });
    once.chain(twice).chain(leases).collect()
}

impl Matrix {
    /// With `ONWARD_MATRIX=full`, every moment is tried.
    fn new(stride: usize) -> Self {
        let is_full = std::env::var("ONWARD_MATRIX").is_ok_and(|value| value == "full");
        let stride = if is_full { 1 } else { stride };
        let baseline = SCENARIOS.iter().map(|_| OnceLock::new()).collect();
        let count = || AtomicUsize::new(0);
        Self {
            stride,
            baseline,
            jobs: jobs(),
            next: count(),
            points: count(),
            double: count(),
        }
    }

    /// Performs the remaining jobs, one after the other.
    fn work(&self, world: &World) {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::SeqCst)) {
            self.crash_everywhere(world, job);
        }
    }

    fn baseline(&self, world: &World, scenario: &Scenario) -> &BaselineAccount {
        let place = SCENARIOS
            .iter()
            .position(|it| it.name == scenario.name)
            .unwrap();
        self.baseline[place].get_or_init(|| BaselineAccount::of(world, scenario))
    }

    fn crash_everywhere(&self, world: &World, job: &Job) {
        let baseline = self.baseline(world, &job.scenario);
        let expected = match job.moment {
            Moment::BeforeStep | Moment::AfterStep => baseline.steps,
            Moment::BeforeTask | Moment::AfterTask => baseline.tasks,
            Moment::BeforeLease | Moment::AfterLease => LEASES,
        };
        let stride = if job.again.is_some() { self.stride } else { 1 };
        for nth in (1..FAR).step_by(stride) {
            let first = Point {
                moment: job.moment,
                nth,
            };
            let crashes: Vec<Point> = [first]
                .into_iter()
                .chain(job.again.map(|moment| Point { moment, nth: 1 }))
                .collect();
            let outcome = world.run(&job.scenario, &crashes);
            compare(&job.scenario, &crashes, baseline, &outcome);
            if outcome.crashes == 0 && nth >= expected {
                return;
            }
            let count = if outcome.crashes > 1 {
                &self.double
            } else {
                &self.points
            };
            count.fetch_add(outcome.crashes.min(1), Ordering::SeqCst);
        }
        panic!("{} has no end at {:?}", job.scenario.name, job.moment);
    }
}

fn compare(scenario: &Scenario, crashes: &[Point], baseline: &BaselineAccount, outcome: &Outcome) {
    let context = format!("{} after {crashes:?}", scenario.name);
    assert_eq!(outcome.account.result, baseline.account.result, "{context}");
    let (found, expected) = (&outcome.account.effects, &baseline.account.effects);
    let places: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    for place in places {
        assert_eq!(found.get(place), expected.get(place), "{place}, {context}");
    }
    assert_performed(&context, outcome);
}

/// Asserts that every started attempt was performed, repeatedly only where a crash left its end
/// unknown, and that every performed attempt was recorded as started.
fn assert_performed(context: &str, outcome: &Outcome) {
    let performed = outcome.ledger.performed();
    let started: BTreeSet<_> = outcome.account.attempts.iter().cloned().collect();
    assert!(
        performed.keys().eq(&started),
        "{context}: {performed:?} {started:?}"
    );
    let most = 1 + u32::try_from(outcome.crashes).unwrap();
    assert!(
        performed.values().all(|times| (1..=most).contains(times)),
        "{context}: {performed:?}"
    );
}

fn crash_all(store: &str, stride: usize, place: impl Fn() -> Place + Sync) {
    let matrix = Matrix::new(stride);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| matrix.work(&World::new(place())));
        }
    });
    let (points, double) = (matrix.points.into_inner(), matrix.double.into_inner());
    println!(
        "{store}: {} workflows, {points} crash points, {double} double crashes",
        SCENARIOS.len()
    );
    assert!(
        points > 10 * SCENARIOS.len() && double >= SCENARIOS.len(),
        "{points} {double}"
    );
}

#[test]
fn a_crash_anywhere_changes_nothing_on_sqlite() {
    crash_all("SQLite", 2, Place::sqlite);
}

#[test]
fn a_crash_anywhere_changes_nothing_on_postgres() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    crash_all("Postgres", 4, || Place::postgres(&cluster));
}

/// The start of the only task is recorded in the first step, its end in the second.
#[test]
fn an_at_most_once_task_runs_once_and_is_in_doubt_after_a_crash() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    for place in [Place::sqlite(), Place::postgres(&cluster)] {
        let world = World::new(place);
        for (moment, nth, performed, is_known) in [
            (Moment::BeforeStep, 1, 1, true),
            (Moment::AfterStep, 1, 0, false),
            (Moment::BeforeTask, 1, 0, false),
            (Moment::AfterTask, 1, 1, false),
            (Moment::BeforeStep, 2, 1, false),
            (Moment::AfterStep, 2, 1, true),
        ] {
            let outcome = world.run(&AT_MOST_ONCE, &[Point { moment, nth }]);
            // Once the end is stored, the client may have left before the crash.
            let is_late = (moment, nth) == (Moment::AfterStep, 2);
            assert!(outcome.crashes == 1 || is_late, "{moment:?} {nth}");
            let times: u32 = outcome.ledger.performed().values().sum();
            let result = outcome.account.result;
            assert_eq!(times, performed, "{moment:?} {nth}: {result}");
            let expected = if is_known { "4" } else { "in_doubt: " };
            assert!(result.starts_with(expected), "{moment:?} {nth}: {result}");
        }
    }
}
