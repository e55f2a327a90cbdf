//! What all benchmarks share: medians over several runs, and a table that shows each rate beside a
//! yardstick measured in the same run. Machines are shared and noisy; a rate without its yardstick
//! says little.

use std::time::Duration;

/// How a benchmark was asked to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Measure only what this number says, counted from 1; all when absent.
    pub only: Option<usize>,
    /// How often each measurement is repeated; the median counts.
    pub runs: usize,
    /// Fail if a rate is below this share of its target.
    pub gate: Option<f64>,
}

impl Options {
    /// Reads `--quick`, `--only NUMBER` and `--gate SHARE`; what cargo itself passes is ignored.
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
                        .ok_or_else(|| anyhow::anyhow!("--gate needs a share such as 0.5"))?;
                    options.gate = Some(share.parse()?);
                }
                "--only" => {
                    let number = args
                        .next()
                        .ok_or_else(|| anyhow::anyhow!("--only needs a number such as 1"))?;
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

impl Options {
    /// Whether a rough figure is enough.
    pub const fn is_quick(self) -> bool {
        self.runs < 9
    }

    /// Whether the part of this number was asked for.
    pub fn wants(self, number: usize) -> bool {
        self.only.is_none_or(|only| only == number)
    }
}

/// The median time of `work`, after one run to warm up.
pub fn median<T>(options: Options, mut work: impl FnMut() -> T) -> Duration {
    median_of(options, || (), |()| work())
}

/// The median time of `work` on what `prepare` makes anew each time; preparing does not count.
pub fn median_of<I, T>(
    options: Options,
    mut prepare: impl FnMut() -> I,
    mut work: impl FnMut(I) -> T,
) -> Duration {
    time(&mut work, prepare());
    let mut times: Vec<Duration> = (0..options.runs)
        .map(|_| time(&mut work, prepare()))
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median of `long`'s time over `short`'s, measured turn by turn: what slows the machine down
/// slows both.
pub fn median_ratio(options: Options, mut short: impl FnMut(), mut long: impl FnMut()) -> f64 {
    short();
    long();
    let mut turn =
        |_| time(&mut |()| long(), ()).as_secs_f64() / time(&mut |()| short(), ()).as_secs_f64();
    let mut ratios: Vec<f64> = (0..options.runs).map(&mut turn).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// How long `work` takes, unless it fails.
pub fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let mut work = Some(work);
    let mut result = Ok(());
    let elapsed = time(
        &mut |()| {
            if let Some(Err(error)) = work.take().map(|work| work()) {
                result = Err(error);
            }
        },
        (),
    );
    result.map(|()| elapsed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark is there to read the clock"
)]
fn time<I, T>(work: &mut impl FnMut(I) -> T, input: I) -> Duration {
    let start = std::time::Instant::now();
    let result = work(input);
    let elapsed = start.elapsed();
    drop(std::hint::black_box(result));
    elapsed
}

/// The rows of a benchmark; the first one is the yardstick.
#[derive(Debug)]
pub struct Report {
    unit: &'static str,
    options: Options,
    yardstick: Option<f64>,
    missed: Vec<String>,
}

impl Report {
    /// Starts a table of rates in `unit` per second.
    pub fn new(title: &str, unit: &'static str, options: Options) -> Self {
        println!("{title} (median of {} runs)", options.runs);
        println!(
            "{:<44} {:>14} {:>9} {:>11}  target",
            "",
            format!("{unit}/s"),
            "ns each",
            "× yardstick"
        );
        Self {
            unit,
            options,
            yardstick: None,
            missed: Vec::new(),
        }
    }

    /// Adds a row: `count` things took `time`; `target` is the rate it should reach.
    pub fn row(&mut self, name: &str, count: usize, time: Duration, target: Option<f64>) {
        let rate = count as f64 / time.as_secs_f64();
        let yardstick = *self.yardstick.get_or_insert(rate);
        let verdict = target.map_or_else(String::new, |target| {
            format!(
                "≥ {} {}",
                grouped(target),
                if rate >= target { "ok" } else { "MISSED" }
            )
        });
        println!(
            "{name:<44} {:>14} {:>9.1} {:>11.2}  {verdict}",
            grouped(rate),
            1e9 / rate,
            rate / yardstick
        );
        if let (Some(target), Some(gate)) = (target, self.options.gate)
            && rate < target * gate
        {
            self.missed.push(format!(
                "{name}: {} {}/s, target {}",
                grouped(rate),
                self.unit,
                grouped(target)
            ));
        }
    }

    /// Adds the yardstick's row and that of `work`, which may have to do as many things at `least`
    /// times the yardstick's rate. The two are measured turn by turn, so that what slows the
    /// machine down slows both.
    pub fn beside(
        &mut self,
        count: usize,
        (yardstick_name, mut yardstick): (&str, impl FnMut() -> anyhow::Result<Duration>),
        (name, mut work): (&str, impl FnMut() -> anyhow::Result<Duration>),
        least: Option<f64>,
    ) -> anyhow::Result<()> {
        yardstick()?;
        work()?;
        let mut turns: Vec<(Duration, Duration)> = Vec::new();
        for _ in 0..self.options.runs {
            turns.push((yardstick()?, work()?));
        }
        let middle = turns.len() / 2;
        turns.sort_unstable_by_key(|(yardstick, _)| *yardstick);
        self.row(yardstick_name, count, turns[middle].0, None);
        turns.sort_unstable_by_key(|(_, work)| *work);
        self.row(name, count, turns[middle].1, None);
        turns.sort_unstable_by(|a, b| share(a).total_cmp(&share(b)));
        let median = share(&turns[middle]);
        let title = "  × yardstick, turn by turn";
        let Some(least) = least else {
            println!("{title:<44} {median:>14.2}");
            return Ok(());
        };
        println!(
            "{title:<44} {median:>14.2}  ≥ {least} {}",
            if median >= least { "ok" } else { "MISSED" }
        );
        if self.options.gate.is_some_and(|gate| median < least * gate) {
            self.missed.push(format!(
                "{name}: {median:.2} of the yardstick, target {least}"
            ));
        }
        Ok(())
    }

    /// Adds a line about a ratio that should stay below `limit`.
    pub fn ratio(&mut self, name: &str, ratio: f64, limit: f64) {
        println!(
            "{name:<44} {ratio:>14.2}  ≤ {limit} {}",
            if ratio <= limit { "ok" } else { "MISSED" }
        );
        if self.options.gate.is_some_and(|gate| ratio * gate > limit) {
            self.missed
                .push(format!("{name}: {ratio:.2}, limit {limit}"));
        }
    }

    /// Ends the table; fails if the gate was missed.
    pub fn finish(self) -> anyhow::Result<()> {
        if self.missed.is_empty() {
            Ok(())
        } else {
            anyhow::bail!("below the gate:\n{}", self.missed.join("\n"))
        }
    }
}

/// The rate of the second as a share of the first's.
fn share((yardstick, work): &(Duration, Duration)) -> f64 {
    yardstick.as_secs_f64() / work.as_secs_f64()
}

/// A whole number with separators.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
