//! Child workflows in the test environment: they share the clock of their parent, are cancelled
//! with it, receive signals of their own, and are retried like tasks.

use std::cell::Cell;

use onward::prelude::*;
use onward::testing::TestEnv;

const SECOND: Duration = Duration::from_secs(1);

#[task]
fn pick(id: u64) -> Result<u64> {
    Ok(id)
}

#[task]
fn put_back(id: u64) -> Result<u64> {
    Ok(id)
}

/// Puts back what it picked when it is cancelled.
#[workflow]
fn shipment(id: u64) -> Result<String> {
    invoke(pick, id)?;
    match await_signal("shipped") {
        Err(error) if error.is_cancelled() => {
            sleep(SECOND)?;
            invoke(put_back, id)?;
            Err(error)
        }
        result => result,
    }
}

/// Reads the outcome of the shipment when it is cancelled.
#[workflow]
fn order(id: u64) -> Result<Result<String>> {
    let shipment = schedule(shipment, id)?;
    match shipment.wait() {
        Err(error) if is_cancelled() => {
            assert_eq!(error, Error::new("cancelled", "cancellation was requested"));
            Ok(shipment.wait())
        }
        result => Ok(result),
    }
}

fn cancelled(reason: &str) -> Error {
    Error::new("cancelled", reason).non_retryable()
}

#[test]
fn cancelling_a_parent_cancels_its_child_which_cleans_up() {
    let mut env = TestEnv::new();
    env.cancel_at(10 * SECOND);
    assert_eq!(
        env.crash_everywhere(order, 7),
        Ok(Err(cancelled("cancellation was requested")))
    );
    assert_eq!(
        (env.recorded_inputs(put_back), env.call_count(shipment)),
        (vec![7], 1)
    );
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[test]
fn a_stub_of_a_child_stops_at_once_when_its_parent_is_cancelled() {
    let mut env = TestEnv::new();
    env.stub(shipment, |_| Ok("unreachable".to_owned()));
    env.set_duration(shipment, 60 * SECOND);
    env.cancel_at(10 * SECOND);
    assert_eq!(
        env.crash_everywhere(order, 7),
        Ok(Err(cancelled("cancellation was requested")))
    );
    assert_eq!(env.elapsed(), 10 * SECOND);
}

#[workflow]
fn stubborn() -> Result<u64> {
    let interrupted = sleep(60 * SECOND).is_err();
    sleep(SECOND)?;
    Ok(u64::from(interrupted))
}

#[workflow]
fn outer() -> Result<u64> {
    let middle = schedule(middle, ())?;
    let _ = middle.wait();
    middle.wait()
}

#[workflow]
fn middle() -> Result<u64> {
    let child = schedule(stubborn, ())?;
    let _ = child.wait();
    child.wait()
}

#[test]
fn cancellation_reaches_nested_children_and_a_child_may_still_succeed() {
    let mut env = TestEnv::new();
    env.cancel_at(10 * SECOND);
    assert_eq!(env.crash_everywhere(outer, ()), Ok(1));
    assert_eq!(env.elapsed(), 11 * SECOND);
}

#[workflow]
fn leaves_its_child() -> Result<()> {
    schedule(shipment, 1)?;
    sleep(SECOND)
}

#[test]
fn a_child_is_cancelled_when_its_parent_ends() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(leaves_its_child, ()), Ok(()));
    assert_eq!((env.elapsed(), env.call_count(put_back)), (SECOND, 1));
}

#[workflow]
fn closes_its_set() -> Result<(Result<String>, Result<u64>)> {
    let mut set = join_set()?;
    let shipment = set.submit(shipment, 1)?;
    assert_eq!(set.next_timeout(SECOND)?, NextResult::TimedOut);
    drop(set);
    let mut set = join_set()?;
    let slow = set.submit(pick, 1)?;
    assert_eq!(set.next_timeout(SECOND)?, NextResult::TimedOut);
    set.close()?;
    Ok((shipment.wait(), slow.wait()))
}

#[test]
fn closing_a_set_cancels_children_and_abandons_tasks() {
    let mut env = TestEnv::new();
    env.set_duration(pick, 3 * SECOND);
    let unwanted = || cancelled("the operation was abandoned");
    assert_eq!(
        env.crash_everywhere(closes_its_set, ()),
        Ok((Err(unwanted()), Err(unwanted())))
    );
}

#[workflow]
fn two_shipments() -> Result<Vec<String>> {
    all(&[schedule(shipment, 1)?, schedule(shipment, 2)?])
}

#[test]
fn each_child_has_signals_of_its_own() {
    let mut env = TestEnv::new();
    env.signal_child(shipment, 1, 5 * SECOND, "shipped", &"second");
    env.signal_child(shipment, 0, 9 * SECOND, "shipped", &"first");
    env.signal("shipped", &"not for a child");
    let both = vec!["first".to_owned(), "second".to_owned()];
    assert_eq!(env.crash_everywhere(two_shipments, ()), Ok(both));
    assert_eq!(env.elapsed(), 9 * SECOND);
}

#[test]
fn the_error_of_a_stuck_test_names_the_waiting_child() {
    let error = TestEnv::new().run(two_shipments, ()).unwrap_err();
    let waits = "its child shipment would wait for the signal shipped";
    assert_eq!(error.message.matches(waits).count(), 2, "{error}");
}

#[workflow]
fn collector(collected: Vec<u64>) -> Result<Vec<u64>> {
    let mut collected = collected;
    collected.push(await_signal("item")?);
    sleep(SECOND)?;
    if collected.len() == 3 {
        Ok(collected)
    } else {
        continue_as_new(collector, collected)
    }
}

#[workflow]
fn collects() -> Result<Vec<u64>> {
    invoke(collector, vec![])
}

#[test]
fn a_successor_receives_unconsumed_signals_in_order() {
    let mut env = TestEnv::new();
    for item in [1, 2] {
        env.signal("item", &item);
        env.signal_child(collector, 0, Duration::ZERO, "item", &item);
    }
    env.signal_at(5 * SECOND, "item", &3);
    env.signal_child(collector, 0, 5 * SECOND, "item", &3);
    assert_eq!(env.crash_everywhere(collector, vec![]), Ok(vec![1, 2, 3]));
    assert_eq!(env.crash_everywhere(collects, ()), Ok(vec![1, 2, 3]));
    assert_eq!(env.call_count(collector), 1);
}

#[workflow]
fn continues_although_cancelled(is_second: bool) -> Result<bool> {
    if is_second {
        return Ok(is_cancelled());
    }
    let _ = sleep(60 * SECOND);
    continue_as_new(continues_although_cancelled, true)
}

#[test]
fn the_successor_of_a_cancelled_execution_is_not_cancelled() {
    let mut env = TestEnv::new();
    env.cancel_at(SECOND);
    assert_eq!(
        env.crash_everywhere(continues_although_cancelled, false),
        Ok(false)
    );
}

#[workflow]
fn fickle(kind: String) -> Result<u64> {
    Err(Error::new(kind, "again"))
}

#[workflow]
fn relies_on_fickle() -> Result<u64> {
    invoke(fickle, "busy")
}

#[test]
fn a_child_is_retried_like_a_task() {
    let mut env = TestEnv::new();
    assert_eq!(
        env.crash_everywhere(relies_on_fickle, ()),
        Err(Error::new("busy", "again"))
    );
    assert_eq!(env.call_count(fickle), 10);
    assert_eq!(
        env.elapsed(),
        (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60) * SECOND
    );
}

#[workflow]
fn sleepy() -> Result<u32> {
    sleep(60 * SECOND)?;
    Ok(call_context().attempt)
}

#[workflow]
fn impatient() -> Result<(bool, u32)> {
    let child = schedule(sleepy, ())?;
    let first = race(child, timer(30 * SECOND)?)?;
    Ok((first == RaceResult::Right(Ok(())), child.wait()?))
}

#[test]
fn a_child_and_its_parent_share_a_clock_and_a_child_has_no_default_timeout() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(impatient, ()), Ok((true, 1)));
    assert_eq!(env.elapsed(), 60 * SECOND);
}

thread_local! {
    static STARTS: Cell<u64> = const { Cell::new(0) };
}

#[workflow]
fn undecided() -> Result<u64> {
    STARTS.set(STARTS.get() + 1);
    invoke(pick, STARTS.get())?;
    invoke(pick, 0)
}

#[workflow]
fn relies_on_undecided() -> Result<u64> {
    invoke(undecided, ())
}

#[test]
fn a_nondeterministic_child_is_detected() {
    let error = TestEnv::new().run(relies_on_undecided, ()).unwrap_err();
    assert_eq!(error.kind, "nondeterminism");
    assert!(
        error.message.starts_with("undecided is not deterministic"),
        "{error}"
    );
}
