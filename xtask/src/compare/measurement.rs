//! The figures of one workload on one side: taken while the load is on, and the middle one of
//! several repetitions.

use std::time::Duration;

use anyhow::Result;

use crate::compare::driver::{Load, Until, put_load_on};
use crate::compare::side::Running;
use crate::compare::usage::{Usage, machine_cpu};
use crate::compare::workload::{Ends, Work, Workload};

/// Fewer invocations than this have no 99th percentile to speak of.
const TAIL_SAMPLES_MIN: usize = 100;

/// How long the load is on.
#[derive(Clone, Copy)]
pub(crate) struct MeasurementPace {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// One repetition, or the medians of several.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) invocations: f64,
    pub(crate) seconds: f64,
    /// Steps, or starts where there are no steps, a second.
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) ends: Option<Ends>,
    pub(crate) processes: Vec<Used>,
    /// How many cores were busy with what is neither the side nor the driver.
    pub(crate) other_cores: f64,
}

/// What a process used while the load was on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Used {
    pub(crate) name: &'static str,
    pub(crate) cpu_seconds: f64,
    pub(crate) written_bytes: f64,
}

/// Puts the load on, first without looking.
pub(crate) fn measure(
    side: &dyn Running,
    workload: &Workload,
    pace: MeasurementPace,
) -> Result<Measurement> {
    let request = side.request(workload.work);
    // Long work is one invocation, and what came before has warmed its side up.
    let until = match workload.work {
        Work::Long => Until::Answered(1),
        Work::Chain | Work::Fanout | Work::Start => {
            put_load_on(workload, &request, Until::Elapsed(pace.warm_up))?;
            Until::Elapsed(pace.measured)
        }
    };
    let before = Meters::read(side)?;
    let load = put_load_on(workload, &request, until)?;
    Measurement::new(workload.work, &load, &Meters::read(side)?.since(&before))
}

/// What everybody has used until a moment, or between two.
struct Meters {
    processes: Vec<(&'static str, Usage)>,
    driver: Duration,
    machine: Duration,
}

impl Meters {
    fn read(side: &dyn Running) -> Result<Self> {
        let processes: Result<_> = side
            .processes()
            .iter()
            .map(|it| Ok((it.name, it.usage()?)))
            .collect();
        Ok(Self {
            processes: processes?,
            driver: Usage::of(std::process::id())?.cpu,
            machine: machine_cpu()?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        let pairs = self.processes.iter().zip(&before.processes);
        Self {
            processes: pairs
                .map(|((name, after), (_, before))| (*name, *after - *before))
                .collect(),
            driver: self.driver.saturating_sub(before.driver),
            machine: self.machine.saturating_sub(before.machine),
        }
    }

    fn of_others(&self) -> Duration {
        let ours = self
            .processes
            .iter()
            .map(|(_, usage)| usage.cpu)
            .sum::<Duration>()
            + self.driver;
        self.machine.saturating_sub(ours)
    }
}

impl Used {
    fn new(name: &'static str, usage: Usage) -> Self {
        Self {
            name,
            cpu_seconds: usage.cpu.as_secs_f64(),
            written_bytes: usage.written_bytes as f64,
        }
    }
}

impl Measurement {
    fn new(work: Work, load: &Load, used: &Meters) -> Result<Self> {
        let invocations = load.latencies.len() as f64;
        let seconds = load.elapsed.as_secs_f64();
        let has_tail = load.latencies.len() >= TAIL_SAMPLES_MIN;
        Ok(Self {
            invocations,
            seconds,
            rate: invocations * f64::from(work.units()) / seconds,
            p50_ms: percentile_ms(&load.latencies, 50),
            p99_ms: has_tail.then(|| percentile_ms(&load.latencies, 99)),
            ends: work.ends(&load.answer)?,
            processes: used
                .processes
                .iter()
                .map(|(name, usage)| Used::new(name, *usage))
                .collect(),
            other_cores: used.of_others().as_secs_f64() / seconds,
        })
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.processes.iter().map(|used| used.cpu_seconds).sum()
    }

    pub(crate) fn written_bytes(&self) -> f64 {
        self.processes.iter().map(|used| used.written_bytes).sum()
    }

    /// How many steps or starts there were.
    pub(crate) fn units(&self) -> f64 {
        self.rate * self.seconds
    }

    /// The middle one of each figure by itself.
    pub(crate) fn median(repetitions: &[Self]) -> Self {
        let middle =
            |figure: &dyn Fn(&Self) -> f64| median(repetitions.iter().map(figure).collect());
        let optional = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let figures: Option<Vec<f64>> = repetitions.iter().map(figure).collect();
            figures.map(median)
        };
        let first = optional(&|one| Some(one.ends?.first));
        let last = optional(&|one| Some(one.ends?.last));
        let names = repetitions.first().map_or(&[][..], |one| &one.processes);
        let process = |(index, used): (usize, &Used)| Used {
            name: used.name,
            cpu_seconds: middle(&|one| one.processes[index].cpu_seconds),
            written_bytes: middle(&|one| one.processes[index].written_bytes),
        };
        Self {
            invocations: middle(&|one| one.invocations),
            seconds: middle(&|one| one.seconds),
            rate: middle(&|one| one.rate),
            p50_ms: middle(&|one| one.p50_ms),
            p99_ms: optional(&|one| one.p99_ms),
            ends: first.zip(last).map(|(first, last)| Ends { first, last }),
            processes: names.iter().enumerate().map(process).collect(),
            other_cores: middle(&|one| one.other_cores),
        }
    }
}

/// The value that so many percent of a sorted list do not exceed.
fn percentile_ms(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted
        .get(rank - 1)
        .map_or(f64::NAN, |latency| latency.as_secs_f64() * 1_000.0)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Measurement, Meters, percentile_ms};
    use crate::compare::driver::Load;
    use crate::compare::usage::Usage;
    use crate::compare::workload::{Ends, Work};

    fn load(invocations: u64, answer: &str) -> Load {
        let latencies = (1..=invocations).map(Duration::from_millis).collect();
        Load {
            elapsed: Duration::from_secs(2),
            latencies,
            answer: answer.to_owned(),
        }
    }

    /// What a server has used; the driver takes a second, and others two.
    fn used(cpu_seconds: u64) -> Meters {
        let usage = Usage {
            cpu: Duration::from_secs(cpu_seconds),
            written_bytes: 10 * cpu_seconds,
        };
        let [driver, machine] = [1, cpu_seconds + 3].map(Duration::from_secs);
        Meters {
            processes: vec![("server", usage)],
            driver,
            machine,
        }
    }

    #[test]
    fn a_rate_counts_the_steps_of_all_invocations() {
        let chain = Measurement::new(Work::Chain, &load(200, "10"), &used(1)).unwrap();
        assert_eq!((chain.rate, chain.units()), (1_000.0, 2_000.0));
        assert_eq!((chain.p50_ms, chain.p99_ms), (100.0, Some(198.0)));
        let start = Measurement::new(Work::Start, &load(200, "0"), &used(1)).unwrap();
        assert_eq!((start.rate, start.units()), (100.0, 200.0));
    }

    #[test]
    fn what_others_do_is_what_remains() {
        let chain = Measurement::new(Work::Chain, &load(200, "10"), &used(1)).unwrap();
        assert_eq!(chain.other_cores, 1.0);
    }

    #[test]
    fn few_invocations_have_no_tail() {
        let chain = Measurement::new(Work::Chain, &load(99, "10"), &used(1)).unwrap();
        assert_eq!(chain.p99_ms, None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<Duration> = [10, 20, 30].map(Duration::from_millis).to_vec();
        assert_eq!(
            [1, 50, 99, 100].map(|percent| percentile_ms(&values, percent)),
            [10.0, 20.0, 30.0, 30.0]
        );
    }

    #[test]
    fn of_each_figure_the_middle_one_counts() {
        let answer = |last: u32| format!(r#"{{"done":5000,"first_ms":100,"last_ms":{last}}}"#);
        let one =
            |cpu, last| Measurement::new(Work::Long, &load(1, &answer(last)), &used(cpu)).unwrap();
        let median = Measurement::median(&[one(3, 500), one(1, 250), one(2, 1_000)]);
        assert_eq!((median.cpu_seconds(), median.written_bytes()), (2.0, 20.0));
        assert_eq!(
            median.ends,
            Some(Ends {
                first: 5_000.0,
                last: 1_000.0
            })
        );
    }
}
