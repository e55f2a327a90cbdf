//! The figures of one workload on one engine, measured under load, and the medians of several
//! repetitions.

use std::time::Duration;

use anyhow::{Context, Result};
use onward_benchmarks::load::{LoadLimit, LoadResult};
use onward_benchmarks::process_usage::{ProcessUsage, cpu_time, machine_cpu_time};
use onward_benchmarks::statistics::median_figure;

use crate::driver::run_load;
use crate::side::RunningEngine;
use crate::workload::{ComparedWork, ComparedWorkload, EndRates};

/// Duration of the load.
#[derive(Clone, Copy)]
pub(crate) struct MeasurementPace {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// One repetition, or the medians of several.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadMeasurement {
    pub(crate) invocations: f64,
    pub(crate) seconds: f64,
    /// Steps per second, or starts per second if the workload has no steps.
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) ends: Option<EndRates>,
    pub(crate) processes: Vec<UsedResources>,
    /// Cores used by processes other than the engine and the driver.
    pub(crate) other_cores: f64,
}

/// Resources that a process used under load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsedResources {
    pub(crate) name: &'static str,
    pub(crate) cpu_seconds: f64,
    pub(crate) written_bytes: f64,
}

/// Runs a workload: a warm-up, then the measurement.
pub(crate) fn measure(
    side: &dyn RunningEngine,
    workload: &ComparedWorkload,
    pace: MeasurementPace,
) -> Result<LoadMeasurement> {
    let request = side.request(workload.work);
    // The long workload is a single invocation; the workloads before it have warmed the engine up.
    let until = match workload.work {
        ComparedWork::Long => LoadLimit::Completed(1),
        ComparedWork::Chain | ComparedWork::Fanout | ComparedWork::Start => {
            run_load(workload, &request, LoadLimit::Elapsed(pace.warm_up))?;
            LoadLimit::Elapsed(pace.measured)
        }
    };
    let before = ResourceMeters::read(side)?;
    let load = run_load(workload, &request, until)?;
    LoadMeasurement::new(
        workload.work,
        &load,
        &ResourceMeters::read(side)?.since(&before),
    )
}

/// Resources used by all processes: totals, or the difference between two readings.
struct ResourceMeters {
    processes: Vec<(&'static str, ProcessUsage)>,
    driver: Duration,
    machine: Duration,
}

impl ResourceMeters {
    fn read(side: &dyn RunningEngine) -> Result<Self> {
        let processes: Result<_> = side
            .processes()
            .iter()
            .map(|it| Ok((it.name, it.read_usage()?)))
            .collect();
        Ok(Self {
            processes: processes?,
            driver: cpu_time(std::process::id()).context("cannot read /proc/self/stat")?,
            machine: machine_cpu_time().context("cannot read /proc/stat")?,
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

impl UsedResources {
    fn new(name: &'static str, usage: ProcessUsage) -> Self {
        Self {
            name,
            cpu_seconds: usage.cpu.as_secs_f64(),
            written_bytes: usage.written_bytes as f64,
        }
    }
}

impl LoadMeasurement {
    fn new(work: ComparedWork, load: &LoadResult<String>, used: &ResourceMeters) -> Result<Self> {
        let invocations = load.latencies.sample_count() as f64;
        let seconds = load.elapsed.as_secs_f64();
        Ok(Self {
            invocations,
            seconds,
            rate: invocations * f64::from(work.units()) / seconds,
            p50_ms: load.latencies.p50_ms().unwrap_or(f64::NAN),
            p99_ms: load.latencies.p99_ms(),
            ends: work.ends(load.result.as_deref().unwrap_or_default())?,
            processes: used
                .processes
                .iter()
                .map(|(name, usage)| UsedResources::new(name, *usage))
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

    /// Number of completed steps or starts.
    pub(crate) fn units(&self) -> f64 {
        self.rate * self.seconds
    }

    /// The median of each figure.
    pub(crate) fn median_of(repetitions: &[Self]) -> Self {
        let middle =
            |figure: &dyn Fn(&Self) -> f64| median_figure(repetitions.iter().map(figure).collect());
        let optional = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let figures: Option<Vec<f64>> = repetitions.iter().map(figure).collect();
            figures.map(median_figure)
        };
        let first = optional(&|one| Some(one.ends?.first));
        let last = optional(&|one| Some(one.ends?.last));
        let names = repetitions.first().map_or(&[][..], |one| &one.processes);
        let process = |(index, used): (usize, &UsedResources)| UsedResources {
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
            ends: first
                .zip(last)
                .map(|(first, last)| EndRates { first, last }),
            processes: names.iter().enumerate().map(process).collect(),
            other_cores: middle(&|one| one.other_cores),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onward_benchmarks::load::LoadResult;
    use onward_benchmarks::process_usage::ProcessUsage;
    use onward_benchmarks::statistics::BenchLatencies;

    use super::{LoadMeasurement, ResourceMeters};
    use crate::workload::{ComparedWork, EndRates};

    fn load(invocations: u64, result: &str) -> LoadResult<String> {
        let latencies = (1..=invocations).map(Duration::from_millis).collect();
        LoadResult {
            elapsed: Duration::from_secs(2),
            latencies: BenchLatencies::new(latencies),
            result: Some(result.to_owned()),
        }
    }

    /// Usage of a server; the driver uses one second, and other processes two.
    fn used(cpu_seconds: u64) -> ResourceMeters {
        let usage = ProcessUsage {
            cpu: Duration::from_secs(cpu_seconds),
            written_bytes: 10 * cpu_seconds,
        };
        let [driver, machine] = [1, cpu_seconds + 3].map(Duration::from_secs);
        ResourceMeters {
            processes: vec![("server", usage)],
            driver,
            machine,
        }
    }

    #[test]
    fn the_rate_counts_the_steps_of_all_invocations() {
        let chain = LoadMeasurement::new(ComparedWork::Chain, &load(200, "10"), &used(1)).unwrap();
        assert_eq!((chain.rate, chain.units()), (1_000.0, 2_000.0));
        assert_eq!((chain.p50_ms, chain.p99_ms), (100.0, Some(198.0)));
        let start = LoadMeasurement::new(ComparedWork::Start, &load(200, "0"), &used(1)).unwrap();
        assert_eq!((start.rate, start.units()), (100.0, 200.0));
    }

    #[test]
    fn other_cores_exclude_the_engine_and_the_driver() {
        let chain = LoadMeasurement::new(ComparedWork::Chain, &load(200, "10"), &used(1)).unwrap();
        assert_eq!(chain.other_cores, 1.0);
    }

    #[test]
    fn few_invocations_have_no_99th_percentile() {
        let chain = LoadMeasurement::new(ComparedWork::Chain, &load(99, "10"), &used(1)).unwrap();
        assert_eq!(chain.p99_ms, None);
    }

    #[test]
    fn the_median_is_taken_for_each_figure() {
        let result = |last: u32| format!(r#"{{"done":5000,"first_ms":100,"last_ms":{last}}}"#);
        let one = |cpu, last| {
            LoadMeasurement::new(ComparedWork::Long, &load(1, &result(last)), &used(cpu)).unwrap()
        };
        let median = LoadMeasurement::median_of(&[one(3, 500), one(1, 250), one(2, 1_000)]);
        assert_eq!((median.cpu_seconds(), median.written_bytes()), (2.0, 20.0));
        assert_eq!(
            median.ends,
            Some(EndRates {
                first: 5_000.0,
                last: 1_000.0
            })
        );
    }
}
