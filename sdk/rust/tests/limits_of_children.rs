//! Child workflows that take too long, are too many below each other, go on as others, or wonder
//! who they are.

use onward::prelude::*;
use onward::testing::TestEnv;

const SECOND: Duration = Duration::from_secs(1);

fn late() -> Error {
    Error::new("timeout", "it took longer than it may")
}

#[task]
fn put_back(id: u64) -> Result<String> {
    Ok(format!("{id} under {}", own().idempotency_key))
}

/// Puts back what it has when it is asked to stop.
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
        .retry(Retry::attempts(2))
        .run()
}

#[test]
fn a_child_that_takes_too_long_is_asked_to_stop_and_tried_again() {
    let mut env = TestEnv::new();
    env.signal_child(shipment, 1, 7 * SECOND, "shipped", &"by the second");
    assert_eq!(
        env.crash_everywhere(hurried, 7),
        Ok("by the second".to_owned())
    );
    assert_eq!((env.calls(shipment), env.inputs(put_back)), (2, vec![7]));
    assert_eq!(env.elapsed(), 7 * SECOND);
}

#[test]
fn a_child_that_always_takes_too_long_is_a_failure_and_cleans_up_all_the_same() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(hurried, 7), Err(late()));
    assert_eq!((env.calls(shipment), env.inputs(put_back)), (2, vec![7, 7]));
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[test]
fn a_crash_gives_a_child_no_more_time() {
    let mut env = TestEnv::new();
    env.crash_at(4 * SECOND);
    assert_eq!(env.run(hurried, 7), Err(late()));
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[test]
fn a_stub_of_a_child_takes_no_longer_than_it_may() {
    let mut env = TestEnv::new();
    env.stub(shipment, |_| Ok("unreachable".to_owned()));
    env.takes(shipment, 6 * SECOND);
    assert_eq!(env.crash_everywhere(hurried, 7), Err(late()));
    assert_eq!(env.elapsed(), 11 * SECOND);
    env.takes(shipment, 5 * SECOND);
    assert!(env.crash_everywhere(hurried, 7).is_ok());
}

/// Does not stop when it is asked to.
#[workflow]
fn stubborn() -> Result<u32> {
    let _ = sleep(60 * SECOND);
    sleep(SECOND)?;
    Ok(own().attempt)
}

#[workflow]
fn outlived() -> Result<Result<u32>> {
    let retry = Retry::attempts(2).first_wait(SECOND / 2);
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
fn what_comes_from_a_child_that_nobody_waits_for_is_no_result() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(outlived, ()), Ok(Err(late())));
    assert_eq!(env.elapsed(), 25 * SECOND + SECOND / 2);
}

#[workflow]
fn both_at_once() -> Result<bool> {
    let child = call(stubborn, ())
        .timeout(SECOND)
        .retry(Retry::never())
        .schedule()?;
    Ok(race(child, timer(SECOND)?)? == First::Right(Ok(())))
}

#[test]
fn a_timer_of_the_same_moment_comes_first() {
    assert_eq!(TestEnv::new().crash_everywhere(both_at_once, ()), Ok(true));
}

/// Goes on as another every three seconds, and puts back what it has when it is asked to stop.
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
    let call = call(wanderer, 0).retry(Retry::attempts(3));
    let child = match limit_s {
        Some(limit) => call
            .retry(Retry::never())
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
fn whoever_takes_the_place_of_a_child_is_asked_to_stop_in_its_place() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(follows, Some(10)), Ok(Err(late())));
    assert_eq!((env.calls(wanderer), env.inputs(put_back)), (1, vec![3]));
    assert_eq!(env.elapsed(), 10 * SECOND);
    env.cancel_at(7 * SECOND);
    let cancelled = Error::new("cancelled", "cancellation was asked for").permanent();
    assert_eq!(env.crash_everywhere(follows, None), Ok(Err(cancelled)));
    assert_eq!((env.calls(wanderer), env.inputs(put_back)), (1, vec![2]));
    assert_eq!(env.elapsed(), 7 * SECOND);
}

type Who = (String, String, u32);

fn who() -> Who {
    let own = own();
    (own.execution, own.idempotency_key, own.attempt)
}

/// Fails once, then goes on as another once, and tells who it was on the way.
#[workflow]
fn introspective(seen: Vec<Who>) -> Result<Vec<Who>> {
    let mut seen = seen;
    seen.push(who());
    if own().attempt == 1 {
        return Err(Error::other("not yet"));
    }
    let (execution, _, attempt) = who();
    seen.push((execution, invoke(put_back, 1)?, attempt));
    if seen.len() == 4 {
        Ok(seen)
    } else {
        continue_as_new(introspective, seen)
    }
}

#[workflow]
fn parent_of_introspective() -> Result<(Who, Vec<Who>)> {
    sleep(SECOND)?;
    Ok((who(), invoke(introspective, vec![])?))
}

#[test]
fn a_child_knows_its_operation_and_its_attempt_and_no_two_executions_share_a_key() {
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
                Error::new("too_deep", "64 workflows wait for each other already").permanent();
            assert_eq!(error, too_deep);
            Ok(depth)
        }
        result => result,
    }
}

#[test]
fn sixty_four_workflows_may_wait_for_each_other() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(dive, 0), Ok(64));
    assert_eq!(env.calls(dive), 65);
    env.stub(dive, Ok);
    assert_eq!(env.run(dive, 0), Ok(1));
}
