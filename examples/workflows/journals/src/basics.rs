//! One behaviour of the engine each.

use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// How much `chain` and `fan_out` do.
#[derive(Serialize, Deserialize)]
pub struct Load {
    pub steps: u32,
    /// How many bytes each step is given.
    #[serde(default)]
    pub work: usize,
}

/// What `waiter` waits for.
#[derive(Serialize, Deserialize)]
pub struct Patience {
    /// For ever when absent.
    pub timeout_ms: Option<u64>,
}

/// What `flaky` does.
#[derive(Serialize, Deserialize)]
pub struct Failures {
    /// So many attempts fail.
    pub count: u32,
    /// Whether the first of them says that trying again cannot help.
    #[serde(default)]
    pub permanent: bool,
}

/// Returns its input, whatever it is.
#[workflow]
pub fn echo(input: Json) -> Result<Json> {
    Ok(input)
}

/// One step after the other.
#[workflow]
pub fn chain(load: Load) -> Result<u32> {
    let work = "x".repeat(load.work);
    for _ in 0..load.steps {
        invoke(step, &work)?;
    }
    Ok(load.steps)
}

/// All steps at once.
#[workflow]
pub fn fan_out(load: Load) -> Result<u32> {
    let work = "x".repeat(load.work);
    let mut set = join_set()?;
    for _ in 0..load.steps {
        set.submit(step, &work)?;
    }
    let mut done = 0;
    while let Some(taken) = set.next()? {
        taken.result?;
        done += 1;
    }
    Ok(done)
}

/// Returns how many bytes it was given.
#[task]
pub fn step(work: String) -> Result<usize> {
    Ok(work.len())
}

/// Sleeps so many milliseconds.
#[workflow]
pub fn sleeper(duration_ms: u64) -> Result<()> {
    sleep(Duration::from_millis(duration_ms))
}

/// Waits for the signal `go` and returns it; `null` when the time is over first.
#[workflow]
pub fn waiter(patience: Patience) -> Result<Option<Json>> {
    match patience.timeout_ms {
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

/// Does a step, waits for the signal `commit`, and undoes the step when it is cancelled meanwhile.
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

/// Undoes a step.
#[task]
pub fn compensate(work: String) -> Result<usize> {
    Ok(work.len())
}

/// Goes on as a new execution until nothing is left, and takes one signal `add` that came meanwhile
/// each time.
#[workflow]
pub fn counter(left: u64) -> Result<u64> {
    let more = await_signal_timeout::<u64>("add", Duration::ZERO)?.unwrap_or(0);
    match left + more {
        0 => Ok(0),
        left => continue_as_new(counter, left - 1),
    }
}

/// Fails with the kind it is given.
#[workflow]
pub fn fail(kind: String) -> Result<()> {
    Err(Error::new(kind, "as asked for"))
}

/// Succeeds after some failures, and returns the attempt.
#[task]
pub fn flaky(failures: Failures) -> Result<u32> {
    let attempt = own().attempt;
    if attempt > failures.count {
        return Ok(attempt);
    }
    let error = Error::new("flaky", format!("attempt {attempt} failed"));
    Err(if failures.permanent {
        error.permanent()
    } else {
        error
    })
}

/// Calls `flaky` with a policy of five attempts, ten milliseconds apart.
#[workflow]
pub fn persistent(failures: Failures) -> Result<u32> {
    let retry = Retry::attempts(5)
        .first_wait(Duration::from_millis(10))
        .factor_permille(1_000)
        .jitter_permille(0);
    call(flaky, failures).retry(retry).run()
}
