//! Limits of child workflows: timeouts, call depth, successors, and their context.

use onward::prelude::*;
use onward::testing::TestEnv;

const SECOND: Duration = Duration::from_secs(1);

fn timeout_error() -> Error {
    Error::new("timeout", "the attempt exceeded its timeout")
}

#[task]
fn put_back(id: u64) -> Result<String> {
    Ok(format!("{id} under {}", call_context().idempotency_key))
}

/// Puts back what it has when it is cancelled.
#[workflow]
fn shipment(id: u64) -> Result<String> {
    match await_signal("shipped") {
        Err(error) if error.is_cancelled() => {
            assert!(is_cancelled());
            sleep(SECOND)?;
            invoke(put_back, id)?;
            Err(error)
        }
        result => result,
    }
}

#[workflow]
fn hurried(id: u64) -> Result<String> {
    call(shipment, id)
        .timeout(5 * SECOND)
        .retry(RetryPolicy::max_attempts(2))
        .run()
}

#[test]
fn a_child_over_its_timeout_is_cancelled_and_retried() {
    let mut env = TestEnv::new();
    env.signal_child(shipment, 1, 7 * SECOND, "shipped", &"by the second");
    assert_eq!(
        env.crash_everywhere(hurried, 7),
        Ok("by the second".to_owned())
    );
    assert_eq!(
        (env.call_count(shipment), env.recorded_inputs(put_back)),
        (2, vec![7])
    );
    assert_eq!(env.elapsed(), 7 * SECOND);
}

#[test]
fn a_child_always_over_its_timeout_fails_and_cleans_up() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(hurried, 7), Err(timeout_error()));
    assert_eq!(
        (env.call_count(shipment), env.recorded_inputs(put_back)),
        (2, vec![7, 7])
    );
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[test]
fn the_timeout_of_a_child_does_not_restart_after_a_crash() {
    let mut env = TestEnv::new();
    env.crash_at(4 * SECOND);
    assert_eq!(env.run(hurried, 7), Err(timeout_error()));
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[test]
fn a_stub_of_a_child_is_subject_to_the_timeout() {
    let mut env = TestEnv::new();
    env.stub(shipment, |_| Ok("unreachable".to_owned()));
    env.set_duration(shipment, 6 * SECOND);
    assert_eq!(env.crash_everywhere(hurried, 7), Err(timeout_error()));
    assert_eq!(env.elapsed(), 11 * SECOND);
    env.set_duration(shipment, 5 * SECOND);
    assert!(env.crash_everywhere(hurried, 7).is_ok());
}

/// Ignores its cancellation.
#[workflow]
fn stubborn() -> Result<u32> {
    let _ = sleep(60 * SECOND);
    sleep(SECOND)?;
    Ok(call_context().attempt)
}

#[workflow]
fn outlived() -> Result<Result<u32>> {
    let retry = RetryPolicy::max_attempts(2).initial_interval(SECOND / 2);
    let child = call(stubborn, ())
        .timeout(10 * SECOND)
        .retry(retry)
        .schedule()?;
    let result = child.wait();
    sleep(5 * SECOND)?;
    assert_eq!(child.wait(), result);
    Ok(result)
}

#[test]
fn the_result_of_an_abandoned_child_is_dropped() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(outlived, ()), Ok(Err(timeout_error())));
    assert_eq!(env.elapsed(), 25 * SECOND + SECOND / 2);
}

#[workflow]
fn both_at_once() -> Result<bool> {
    let child = call(stubborn, ())
        .timeout(SECOND)
        .retry(RetryPolicy::no_retries())
        .schedule()?;
    Ok(race(child, timer(SECOND)?)? == RaceResult::Right(Ok(())))
}

#[test]
fn a_timer_at_the_same_time_fires_first() {
    assert_eq!(TestEnv::new().crash_everywhere(both_at_once, ()), Ok(true));
}

/// Continues as new every three seconds, and puts back what it has when it is cancelled.
#[workflow]
fn wanderer(hops: u64) -> Result<String> {
    match sleep(3 * SECOND) {
        Ok(()) => continue_as_new(wanderer, hops + 1),
        Err(error) => {
            invoke(put_back, hops)?;
            Err(error)
        }
    }
}

#[workflow]
fn follows(limit_s: Option<u64>) -> Result<Result<String>> {
    let call = call(wanderer, 0).retry(RetryPolicy::max_attempts(3));
    let child = match limit_s {
        Some(limit) => call
            .retry(RetryPolicy::no_retries())
            .timeout(Duration::from_secs(limit))
            .schedule()?,
        None => call.schedule()?,
    };
    match child.wait() {
        Err(_) if is_cancelled() => Ok(child.wait()),
        result => Ok(result),
    }
}

#[test]
fn the_successor_of_a_child_is_cancelled_with_it() {
    let mut env = TestEnv::new();
    assert_eq!(
        env.crash_everywhere(follows, Some(10)),
        Ok(Err(timeout_error()))
    );
    assert_eq!(
        (env.call_count(wanderer), env.recorded_inputs(put_back)),
        (1, vec![3])
    );
    assert_eq!(env.elapsed(), 10 * SECOND);
    env.cancel_at(7 * SECOND);
    let cancelled = Error::new("cancelled", "cancellation was requested").non_retryable();
    assert_eq!(env.crash_everywhere(follows, None), Ok(Err(cancelled)));
    assert_eq!(
        (env.call_count(wanderer), env.recorded_inputs(put_back)),
        (1, vec![2])
    );
    assert_eq!(env.elapsed(), 7 * SECOND);
}

type OwnContext = (String, String, u32);

fn own_context() -> OwnContext {
    let own = call_context();
    (own.execution, own.idempotency_key, own.attempt)
}

/// Fails once, then continues as new once, and returns its contexts.
#[workflow]
fn introspective(seen: Vec<OwnContext>) -> Result<Vec<OwnContext>> {
    let mut seen = seen;
    seen.push(own_context());
    if call_context().attempt == 1 {
        return Err(Error::other("not yet"));
    }
    let (execution, _, attempt) = own_context();
    seen.push((execution, invoke(put_back, 1)?, attempt));
    if seen.len() == 4 {
        Ok(seen)
    } else {
        continue_as_new(introspective, seen)
    }
}

#[workflow]
fn parent_of_introspective() -> Result<(OwnContext, Vec<OwnContext>)> {
    sleep(SECOND)?;
    Ok((own_context(), invoke(introspective, vec![])?))
}

#[test]
fn a_child_has_its_operation_and_attempt_and_keys_are_unique() {
    let me = |execution: &str, key: &str, attempt| (execution.to_owned(), key.to_owned(), attempt);
    let (parent, seen) = TestEnv::new()
        .crash_everywhere(parent_of_introspective, ())
        .unwrap();
    assert_eq!(parent, me("test", "", 1));
    let expected = [
        me("test.1#2", "test.1", 2),
        me("test.1#2", "1 under test.1#2.0", 2),
        me("test.1#2~1", "test.1", 2),
        me("test.1#2~1", "1 under test.1#2~1.0", 2),
    ];
    assert_eq!(seen, expected);
}

#[workflow]
fn dive(depth: u32) -> Result<u32> {
    match invoke(dive, depth + 1) {
        Err(error) if depth == 64 => {
            let too_deep =
                Error::new("too_deep", "call depth exceeds 64 nested workflows").non_retryable();
            assert_eq!(error, too_deep);
            Ok(depth)
        }
        result => result,
    }
}

#[test]
fn the_call_depth_is_limited_to_64() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(dive, 0), Ok(64));
    assert_eq!(env.call_count(dive), 65);
    env.stub(dive, Ok);
    assert_eq!(env.run(dive, 0), Ok(1));
}
