//! Options and report of the `cargo bench` targets: medians over several runs, and a table with
//! each rate and its ratio to a baseline of the same run. On shared, noisy machines only that ratio
//! is comparable.

use std::time::Duration;

use crate::statistics::{median_duration, median_figure};
use crate::stopwatch::BenchStopwatch;
use crate::text_table::group_digits;

/// Command line options of a bench target.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Number of the only part to measure, starting at 1; default: all parts.
    pub only: Option<usize>,
    /// Repetitions of each measurement; the report has the median.
    pub runs: usize,
    /// Fail if a rate is below this fraction of its target.
    pub gate: Option<f64>,
}

impl TargetOptions {
    /// Parses `--quick`, `--only NUMBER` and `--gate SHARE`; ignores `--bench`, which cargo passes.
    pub fn from_args() -> anyhow::Result<Self> {
        let mut options = Self {
            only: None,
            runs: 9,
            gate: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.runs = 3,
                "--gate" => {
                    let share = args
                        .next()
                        .ok_or_else(|| anyhow::anyhow!("--gate requires a fraction such as 0.5"))?;
                    options.gate = Some(share.parse()?);
                }
                "--only" => {
                    let number = args
                        .next()
                        .ok_or_else(|| anyhow::anyhow!("--only requires a number such as 1"))?;
                    options.only = Some(number.parse()?);
                }
                "--bench" => {}
                other => anyhow::bail!(
                    "unknown argument {other}: expected --quick, --only NUMBER or --gate SHARE"
                ),
            }
        }
        Ok(options)
    }
}

impl TargetOptions {
    /// Whether `--quick` was given: less accurate figures are sufficient.
    pub const fn is_quick(self) -> bool {
        self.runs < 9
    }

    /// Whether to measure the part with this number.
    pub fn includes_part(self, number: usize) -> bool {
        self.only.is_none_or(|only| only == number)
    }
}

/// Returns the median time of `work`, after one warm-up run.
pub fn median_time<T>(options: TargetOptions, mut work: impl FnMut() -> T) -> Duration {
    median_time_of(options, || (), |()| work())
}

/// The median time of `work` on a new input of `prepare` each time; preparation is not measured.
pub fn median_time_of<I, T>(
    options: TargetOptions,
    mut prepare: impl FnMut() -> I,
    mut work: impl FnMut(I) -> T,
) -> Duration {
    measure_time(&mut work, prepare());
    let times = (0..options.runs).map(|_| measure_time(&mut work, prepare()));
    median_duration(times.collect())
}

/// The median ratio of the time of `long` to that of `short`, measured alternately, so that a
/// temporary slowdown of the machine affects both.
pub fn median_time_ratio(
    options: TargetOptions,
    mut short: impl FnMut(),
    mut long: impl FnMut(),
) -> f64 {
    short();
    long();
    let mut ratio = |_| {
        measure_time(&mut |()| long(), ()).as_secs_f64()
            / measure_time(&mut |()| short(), ()).as_secs_f64()
    };
    median_figure((0..options.runs).map(&mut ratio).collect())
}

/// Measures `work`; fails if it fails.
pub fn measure_once<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let mut work = Some(work);
    let mut result = Ok(());
    let elapsed = measure_time(
        &mut |()| {
            if let Some(Err(error)) = work.take().map(|work| work()) {
                result = Err(error);
            }
        },
        (),
    );
    result.map(|()| elapsed)
}

fn measure_time<I, T>(work: &mut impl FnMut(I) -> T, input: I) -> Duration {
    let watch = BenchStopwatch::start_now();
    let result = work(input);
    let elapsed = watch.elapsed();
    drop(std::hint::black_box(result));
    elapsed
}

/// The table of a benchmark; the first row is the baseline.
#[derive(Debug)]
pub struct TargetReport {
    unit: &'static str,
    options: TargetOptions,
    baseline: Option<f64>,
    missed: Vec<String>,
}

impl TargetReport {
    /// Starts a table of rates in `unit` per second.
    pub fn new(title: &str, unit: &'static str, options: TargetOptions) -> Self {
        println!("{title} (median of {} runs)", options.runs);
        println!(
            "{:<44} {:>14} {:>9} {:>11}  target",
            "",
            format!("{unit}/s"),
            "ns/op",
            "× baseline"
        );
        Self {
            unit,
            options,
            baseline: None,
            missed: Vec::new(),
        }
    }

    /// Adds a row: `count` operations took `time`; `target` is the expected rate.
    pub fn add_row(&mut self, name: &str, count: usize, time: Duration, target: Option<f64>) {
        let rate = count as f64 / time.as_secs_f64();
        let baseline = *self.baseline.get_or_insert(rate);
        let comparison = target.map_or_else(String::new, |target| {
            format!(
                "≥ {} {}",
                group_digits(target),
                if rate >= target { "ok" } else { "MISSED" }
            )
        });
        println!(
            "{name:<44} {:>14} {:>9.1} {:>11.2}  {comparison}",
            group_digits(rate),
            1e9 / rate,
            rate / baseline
        );
        if let (Some(target), Some(gate)) = (target, self.options.gate)
            && rate < target * gate
        {
            self.missed.push(format!(
                "{name}: {} {}/s, target {}",
                group_digits(rate),
                self.unit,
                group_digits(target)
            ));
        }
    }

    /// Adds a row for the baseline and one for `work`, which should reach `min_ratio` times the
    /// rate of the baseline. Both perform `count` operations and are measured alternately, so that
    /// a temporary slowdown of the machine affects both.
    pub fn compare_with_baseline(
        &mut self,
        count: usize,
        (baseline_name, mut baseline): (&str, impl FnMut() -> anyhow::Result<Duration>),
        (name, mut work): (&str, impl FnMut() -> anyhow::Result<Duration>),
        min_ratio: Option<f64>,
    ) -> anyhow::Result<()> {
        baseline()?;
        work()?;
        let mut pairs: Vec<(Duration, Duration)> = Vec::new();
        for _ in 0..self.options.runs {
            pairs.push((baseline()?, work()?));
        }
        let middle = pairs.len() / 2;
        pairs.sort_unstable_by_key(|(baseline, _)| *baseline);
        self.add_row(baseline_name, count, pairs[middle].0, None);
        pairs.sort_unstable_by_key(|(_, work)| *work);
        self.add_row(name, count, pairs[middle].1, None);
        pairs.sort_unstable_by(|a, b| rate_ratio(a).total_cmp(&rate_ratio(b)));
        let median = rate_ratio(&pairs[middle]);
        let title = "  × baseline, alternating runs";
        let Some(min_ratio) = min_ratio else {
            println!("{title:<44} {median:>14.2}");
            return Ok(());
        };
        println!(
            "{title:<44} {median:>14.2}  ≥ {min_ratio} {}",
            if median >= min_ratio { "ok" } else { "MISSED" }
        );
        if self
            .options
            .gate
            .is_some_and(|gate| median < min_ratio * gate)
        {
            self.missed.push(format!(
                "{name}: {median:.2} × baseline, target {min_ratio}"
            ));
        }
        Ok(())
    }

    /// Adds a row for a ratio that should not exceed `limit`.
    pub fn add_ratio(&mut self, name: &str, ratio: f64, limit: f64) {
        println!(
            "{name:<44} {ratio:>14.2}  ≤ {limit} {}",
            if ratio <= limit { "ok" } else { "MISSED" }
        );
        if self.options.gate.is_some_and(|gate| ratio * gate > limit) {
            self.missed
                .push(format!("{name}: {ratio:.2}, limit {limit}"));
        }
    }

    /// Ends the table. Fails if a figure missed the gate.
    pub fn finish(self) -> anyhow::Result<()> {
        if self.missed.is_empty() {
            Ok(())
        } else {
            anyhow::bail!("targets missed (see --gate):\n{}", self.missed.join("\n"))
        }
    }
}

/// The rate of the work divided by the rate of the baseline.
fn rate_ratio((baseline, work): &(Duration, Duration)) -> f64 {
    baseline.as_secs_f64() / work.as_secs_f64()
}
