//! A process that dies while something is under way: it is done again, or nobody knows whether it
//! was done.

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
    call(at_most, cents).retry(Retry::attempts(3)).run()
}

/// A charge is under way from the first to the third second.
fn slow_charge() -> TestEnv {
    let mut env = TestEnv::new();
    env.takes(charge, 2 * SECOND);
    env
}

fn in_doubt() -> Error {
    Error::new(
        "in_doubt",
        "it was started before a crash, and whether it was done is not known",
    )
    .permanent()
}

#[test]
fn what_was_under_way_is_done_again() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(at_least, 5), Ok(5));
    assert_eq!((env.calls(charge), env.elapsed()), (2, 4 * SECOND));
}

#[test]
fn what_may_be_done_once_only_is_in_doubt() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(at_most, 5), Err(in_doubt()));
    assert_eq!((env.calls(charge), env.elapsed()), (1, 2 * SECOND));
}

#[test]
fn a_child_in_doubt_says_so_to_its_parent() {
    let mut env = slow_charge();
    env.crash_at(2 * SECOND);
    assert_eq!(env.crash_everywhere(parent, 5), Err(in_doubt()));
    assert_eq!((env.calls(at_most), env.calls(charge)), (1, 1));
}

#[test]
fn a_crash_while_nothing_is_under_way_changes_nothing() {
    let mut env = slow_charge();
    env.crash_at(Duration::ZERO);
    env.crash_at(SECOND / 2);
    env.crash_at(SECOND);
    assert_eq!(env.crash_everywhere(at_most, 5), Ok(5));
    assert_eq!((env.calls(charge), env.elapsed()), (1, 3 * SECOND));
}

#[workflow]
fn signalled() -> Result<(Option<u64>, u64)> {
    let first = await_signal_timeout("go", 3 * SECOND)?;
    Ok((first, await_signal("go")?))
}

#[test]
fn a_limit_of_time_does_not_begin_again_after_a_crash() {
    let mut env = TestEnv::new();
    env.crash_at(2 * SECOND);
    env.signal_at(4 * SECOND, "go", &1);
    assert_eq!(env.crash_everywhere(signalled, ()), Ok((None, 1)));
    assert_eq!(env.elapsed(), 4 * SECOND);
}

#[workflow]
fn slow() -> Result<u64> {
    call(charge, 1).retry(Retry::never()).run()
}

#[test]
fn a_task_has_a_minute_unless_its_call_says_otherwise() {
    let mut env = TestEnv::new();
    env.takes(charge, 60 * SECOND);
    assert_eq!(env.run(slow, ()), Ok(1));
    env.takes(charge, 61 * SECOND);
    assert_eq!(
        env.run(slow, ()),
        Err(Error::new("timeout", "no result in 60000 ms"))
    );
    assert_eq!(env.elapsed(), 60 * SECOND);
}
