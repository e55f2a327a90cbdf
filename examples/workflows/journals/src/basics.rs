//! Workflows that use one feature of the engine each.

use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// Input of `chain` and `fan_out`.
#[derive(Serialize, Deserialize)]
pub struct Load {
    /// Number of steps.
    pub steps: u32,
    /// Bytes of the input of each step.
    #[serde(default)]
    pub work: usize,
}

/// Input of `waiter`.
#[derive(Serialize, Deserialize)]
pub struct WaitOptions {
    /// Timeout of the wait; default: none.
    pub timeout_ms: Option<u64>,
}

/// Input of `flaky` and `persistent`.
#[derive(Serialize, Deserialize)]
pub struct Failures {
    /// Number of attempts that fail.
    pub count: u32,
    /// Whether the failures are not retryable.
    #[serde(default)]
    pub non_retryable: bool,
}

/// Returns its input.
#[workflow]
pub fn echo(input: Json) -> Result<Json> {
    Ok(input)
}

/// Runs the steps sequentially.
#[workflow]
pub fn chain(load: Load) -> Result<u32> {
    let work = "x".repeat(load.work);
    for _ in 0..load.steps {
        invoke(step, &work)?;
    }
    Ok(load.steps)
}

/// Runs all steps concurrently.
#[workflow]
pub fn fan_out(load: Load) -> Result<u32> {
    let work = "x".repeat(load.work);
    let mut set = join_set()?;
    for _ in 0..load.steps {
        set.submit(step, &work)?;
    }
    let mut done = 0;
    while let Some(joined) = set.next()? {
        joined.result?;
        done += 1;
    }
    Ok(done)
}

/// Returns the number of bytes of its input.
#[task]
pub fn step(work: String) -> Result<usize> {
    Ok(work.len())
}

/// Sleeps for this duration.
#[workflow]
pub fn sleeper(duration_ms: u64) -> Result<()> {
    sleep(Duration::from_millis(duration_ms))
}

/// Waits for the signal `go` and returns its payload, or `null` if the timeout expires first.
#[workflow]
pub fn waiter(options: WaitOptions) -> Result<Option<Json>> {
    match options.timeout_ms {
        None => await_signal("go").map(Some),
        Some(limit) => await_signal_timeout("go", Duration::from_millis(limit)),
    }
}

/// Calls `child` twice, the second time through a join set.
#[workflow]
pub fn parent(n: u64) -> Result<u64> {
    let first = invoke(child, n)?;
    let mut set = join_set()?;
    set.submit(child, first)?;
    match set.next()? {
        Some(done) => done.result,
        None => Err(Error::other("the set has one member")),
    }
}

/// Adds one after a millisecond.
#[workflow]
pub fn child(n: u64) -> Result<u64> {
    sleep(Duration::from_millis(1))?;
    Ok(n + 1)
}

/// Runs a step and waits for the signal `commit`; compensates the step if it is cancelled first.
#[workflow]
pub fn saga(work: String) -> Result<Json> {
    invoke(step, &work)?;
    match await_signal("commit") {
        Err(error) if error.is_cancelled() => {
            invoke(compensate, &work)?;
            Err(error)
        }
        result => result,
    }
}

/// Compensates a step.
#[task]
pub fn compensate(work: String) -> Result<usize> {
    Ok(work.len())
}

/// Counts down by continuing as new; each execution first adds the payload of one buffered signal
/// `add`.
#[workflow]
pub fn counter(left: u64) -> Result<u64> {
    let more = await_signal_timeout::<u64>("add", Duration::ZERO)?.unwrap_or(0);
    match left + more {
        0 => Ok(0),
        left => continue_as_new(counter, left - 1),
    }
}

/// Fails with this kind.
#[workflow]
pub fn fail(kind: String) -> Result<()> {
    Err(Error::new(kind, "as requested"))
}

/// Fails the given number of attempts, then returns the number of the attempt.
#[task]
pub fn flaky(failures: Failures) -> Result<u32> {
    let attempt = call_context().attempt;
    if attempt > failures.count {
        return Ok(attempt);
    }
    let error = Error::new("flaky", format!("attempt {attempt} failed"));
    Err(if failures.non_retryable {
        error.non_retryable()
    } else {
        error
    })
}

/// Calls `flaky` with at most five attempts, at an interval of 10 ms.
#[workflow]
pub fn persistent(failures: Failures) -> Result<u32> {
    let retry = RetryPolicy::max_attempts(5)
        .initial_interval(Duration::from_millis(10))
        .factor_permille(1_000)
        .jitter_permille(0);
    call(flaky, failures).retry(retry).run()
}
