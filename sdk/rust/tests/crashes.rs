//! A crash with attempts in flight: they are repeated, or in doubt.

use onward::prelude::*;
use onward::testing::TestEnv;

const SECOND: Duration = Duration::from_secs(1);

#[task]
fn charge(cents: u64) -> Result<u64> {
    Ok(cents)
}

#[workflow]
fn at_least(cents: u64) -> Result<u64> {
    sleep(SECOND)?;
    invoke(charge, cents)
}

#[workflow]
fn at_most(cents: u64) -> Result<u64> {
    sleep(SECOND)?;
    call(charge, cents).at_most_once().run()
}

#[workflow]
fn parent(cents: u64) -> Result<u64> {
    call(at_most, cents)
        .retry(RetryPolicy::max_attempts(3))
        .run()
}

/// A charge is in flight from the first to the third second.
fn slow_charge() -> TestEnv {
    let mut env = TestEnv::new();
    env.set_duration(charge, 2 * SECOND);
    env
}

fn in_doubt() -> Error {
    Error::new(
        "in_doubt",
        "the attempt was started before a crash; whether it took effect is unknown",
    )
    .non_retryable()
}

#[test]
fn an_attempt_in_flight_is_repeated_after_a_crash() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(at_least, 5), Ok(5));
    assert_eq!((env.call_count(charge), env.elapsed()), (2, 4 * SECOND));
}

#[test]
fn an_at_most_once_attempt_in_flight_is_in_doubt_after_a_crash() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(at_most, 5), Err(in_doubt()));
    assert_eq!((env.call_count(charge), env.elapsed()), (1, 2 * SECOND));
}

#[test]
fn a_parent_receives_the_doubt_of_its_child() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(parent, 5), Err(in_doubt()));
    assert_eq!((env.call_count(at_most), env.call_count(charge)), (1, 1));
}

#[test]
fn a_crash_without_attempts_in_flight_changes_nothing() {
    let mut env = slow_charge();
    env.crash_at(Duration::ZERO);
    env.crash_at(SECOND / 2);
    env.crash_at(SECOND);
    assert_eq!(env.crash_everywhere(at_most, 5), Ok(5));
    assert_eq!((env.call_count(charge), env.elapsed()), (1, 3 * SECOND));
}

#[workflow]
fn signalled() -> Result<(Option<u64>, u64)> {
    let first = await_signal_timeout("go", 3 * SECOND)?;
    Ok((first, await_signal("go")?))
}

#[test]
fn a_timeout_does_not_restart_after_a_crash() {
    let mut env = TestEnv::new();
    env.crash_at(2 * SECOND);
    env.signal_at(4 * SECOND, "go", &1);
    assert_eq!(env.crash_everywhere(signalled, ()), Ok((None, 1)));
    assert_eq!(env.elapsed(), 4 * SECOND);
}

#[workflow]
fn slow() -> Result<u64> {
    call(charge, 1).retry(RetryPolicy::no_retries()).run()
}

#[test]
fn the_default_timeout_of_a_task_is_a_minute() {
    let mut env = TestEnv::new();
    env.set_duration(charge, 60 * SECOND);
    assert_eq!(env.run(slow, ()), Ok(1));
    env.set_duration(charge, 61 * SECOND);
    assert_eq!(
        env.run(slow, ()),
        Err(Error::new("timeout", "no result in 60000 ms"))
    );
    assert_eq!(env.elapsed(), 60 * SECOND);
}
