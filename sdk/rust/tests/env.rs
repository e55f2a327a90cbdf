//! Workflows in the test environment: waits, failures and crashes.

use std::cell::Cell;
use std::collections::BTreeMap;

use onward::prelude::*;
use onward::testing::TestEnv;
use onward::{HttpResponse, LogLevel};

#[task]
fn double(n: u64) -> Result<u64> {
    Ok(2 * n)
}

#[task]
fn add(a: u64, b: u64) -> Result<u64> {
    Ok(a + b)
}

#[task]
fn third_time() -> Result<u32> {
    match call_context().attempt {
        attempt @ 1..3 => Err(Error::new("busy", format!("attempt {attempt}"))),
        attempt => Ok(attempt),
    }
}

#[workflow]
fn straight(n: u64) -> Result<u64> {
    let doubled = invoke(double, n)?;
    sleep(Duration::from_secs(60))?;
    invoke(add, (doubled, 1))
}

#[test]
fn a_function_stays_a_function() {
    assert_eq!(double(4), Ok(8));
    assert_eq!(add(4, 5), Ok(9));
}

/// Arguments may be patterns.
#[task]
fn patterns(mut n: u64, (a, b): (u64, u64), _: bool) -> Result<u64> {
    n += a * b;
    Ok(n)
}

#[workflow]
fn shadowing(double: u64) -> Result<u64> {
    let patterns = invoke(patterns, (double, (2, 3), true))?;
    let shadowing = invoke(self::double, patterns)?;
    Ok(shadowing)
}

#[test]
fn variables_may_have_the_names_of_functions() {
    assert_eq!(TestEnv::new().crash_everywhere(shadowing, 1), Ok(14));
}

#[test]
fn tasks_run_for_real_and_time_is_virtual() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(straight, 20), Ok(41));
    assert_eq!(env.elapsed(), Duration::from_secs(60));
    assert_eq!(env.recorded_inputs(add), [(40, 1)]);
}

#[test]
fn a_stub_replaces_a_task() {
    let mut env = TestEnv::new();
    env.stub(double, |n| Ok(n + 100));
    assert_eq!(env.crash_everywhere(straight, 1), Ok(102));
    assert_eq!(env.call_count(double), 1);
}

#[workflow]
fn retry() -> Result<u32> {
    call(third_time, ())
        .retry(RetryPolicy::max_attempts(5).initial_interval(Duration::from_secs(1)))
        .run()
}

#[workflow]
fn hasty() -> Result<u32> {
    call(third_time, ())
        .retry(RetryPolicy::max_attempts(5).non_retryable("busy"))
        .run()
}

#[test]
fn a_failed_task_is_retried_after_its_waits() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(retry, ()), Ok(3));
    assert_eq!(env.call_count(third_time), 3);
    assert_eq!(env.elapsed(), Duration::from_secs(3));
}

#[test]
fn an_excluded_kind_and_a_non_retryable_failure_are_not_retried() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(hasty, ()), Err(Error::new("busy", "attempt 1")));
    env.stub(third_time, |()| {
        Err(Error::new("gone", "for good").non_retryable())
    });
    assert!(
        env.run(retry, ())
            .is_err_and(|error| error.has_kind("gone"))
    );
    assert_eq!(env.call_count(third_time), 1);
}

#[workflow]
fn limited() -> Result<u64> {
    call(double, 1)
        .retry(RetryPolicy::no_retries())
        .timeout(Duration::from_secs(5))
        .run()
}

#[test]
fn an_attempt_over_its_timeout_fails() {
    let mut env = TestEnv::new();
    env.set_duration(double, Duration::from_secs(6));
    assert!(env.run(limited, ()).is_err_and(|error| error.is_timeout()));
    assert_eq!(env.elapsed(), Duration::from_secs(5));
}

#[workflow]
fn as_they_come() -> Result<Vec<usize>> {
    let mut set = join_set()?;
    set.submit(double, 1)?;
    set.submit(add, (1, 2))?;
    let mut order = Vec::new();
    while let Some(done) = set.next()? {
        done.result?;
        order.push(done.index);
    }
    Ok(order)
}

#[test]
fn results_of_a_set_come_in_order_of_completion() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(as_they_come, ()), Ok(vec![0, 1]));
    env.set_duration(double, Duration::from_secs(1));
    assert_eq!(env.crash_everywhere(as_they_come, ()), Ok(vec![1, 0]));
}

#[task]
fn refuse(_: u64) -> Result<u64> {
    Err(Error::new("refused", "no").non_retryable())
}

#[workflow]
fn all_or_none(with_refusal: bool) -> Result<Vec<u64>> {
    let mut set = join_set()?;
    set.submit(double, 1)?;
    set.submit(double, 2)?;
    if with_refusal {
        set.submit(refuse, 3)?;
    }
    set.join_all()
}

#[test]
fn join_all_returns_all_results_or_the_first_failure() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(all_or_none, false), Ok(vec![2, 4]));
    env.set_duration(double, Duration::from_secs(9));
    assert!(
        env.crash_everywhere(all_or_none, true)
            .is_err_and(|error| error.has_kind("refused"))
    );
    assert_eq!(
        env.elapsed(),
        Duration::ZERO,
        "the other members are not waited for"
    );
}

#[workflow]
fn gives_up() -> Result<bool> {
    let mut set = join_set()?;
    set.submit(double, 1)?;
    let taken = set.next_timeout(Duration::from_secs(1))?;
    drop(set);
    sleep(Duration::from_secs(9))?;
    Ok(taken == NextResult::TimedOut)
}

#[test]
fn a_dropped_set_cancels_operations_in_flight() {
    let mut env = TestEnv::new();
    env.set_duration(double, Duration::from_secs(2));
    assert_eq!(env.crash_everywhere(gives_up, ()), Ok(true));
}

#[workflow]
fn signalled() -> Result<(u64, Option<u64>)> {
    let first = await_signal("go")?;
    let second = await_signal_timeout("go", Duration::from_secs(5))?;
    Ok((first, second))
}

#[test]
fn signals_are_consumed_in_order_and_awaited_in_virtual_time() {
    let mut env = TestEnv::new();
    env.signal("go", &1);
    assert_eq!(env.crash_everywhere(signalled, ()), Ok((1, None)));
    assert_eq!(env.elapsed(), Duration::from_secs(5));
    env.signal_at(Duration::from_secs(3), "go", &2);
    assert_eq!(env.crash_everywhere(signalled, ()), Ok((1, Some(2))));
    assert_eq!(env.elapsed(), Duration::from_secs(3));
}

#[test]
fn a_wait_that_nothing_can_end_is_an_error() {
    let error = TestEnv::new().run(signalled, ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stuck: signalled would wait for the signal go forever: no operation in flight can end it"
    );
}

#[workflow]
fn saga() -> Result<()> {
    invoke(double, 1)?;
    let slept = sleep(Duration::from_secs(60));
    assert!(is_cancelled());
    invoke(add, (1, 1))?;
    slept
}

#[test]
fn cancellation_interrupts_a_wait_once_and_lets_cleanup_run() {
    let mut env = TestEnv::new();
    env.cancel_at(Duration::from_secs(10));
    assert!(
        env.crash_everywhere(saga, ())
            .is_err_and(|error| error.is_cancelled())
    );
    assert_eq!(
        (env.call_count(add), env.elapsed()),
        (1, Duration::from_secs(10))
    );
}

#[workflow]
fn raced() -> Result<(bool, u64, Vec<u64>)> {
    let slow = schedule(double, 1)?;
    let first = race(slow, timer(Duration::from_secs(1))?)?;
    let (place, sum) = any(&[slow, schedule(add, (1, 2))?])?;
    assert_eq!(place, 1);
    Ok((
        first == RaceResult::Right(Ok(())),
        sum?,
        all(&[slow, slow_twin()?])?,
    ))
}

fn slow_twin() -> Result<Promise<u64>> {
    schedule(double, 2)
}

#[test]
fn any_and_race_return_the_operation_that_completes_first() {
    let mut env = TestEnv::new();
    env.set_duration(double, Duration::from_secs(2));
    assert_eq!(env.crash_everywhere(raced, ()), Ok((true, 3, vec![2, 4])));
}

#[workflow]
fn countdown(left: u64) -> Result<u64> {
    sleep(Duration::from_secs(1))?;
    if left == 0 {
        await_signal("end")
    } else {
        continue_as_new(countdown, left - 1)
    }
}

#[workflow]
fn impostor(left: u64) -> Result<u64> {
    continue_as_new(countdown, left)
}

#[test]
fn a_workflow_continues_as_itself_and_keeps_its_signals() {
    let mut env = TestEnv::new();
    env.signal("end", &7);
    assert_eq!(env.crash_everywhere(countdown, 3), Ok(7));
    assert_eq!(env.elapsed(), Duration::from_secs(4));
    assert!(
        env.run(impostor, 1)
            .unwrap_err()
            .message
            .contains("continues as itself")
    );
}

#[workflow]
fn parent(n: u64) -> Result<Vec<u64>> {
    all(&[schedule(straight, n)?, schedule(straight, n + 1)?])
}

#[test]
fn children_run_concurrently() {
    let mut env = TestEnv::new();
    assert_eq!(env.crash_everywhere(parent, 1), Ok(vec![3, 5]));
    assert_eq!((env.call_count(straight), env.call_count(double)), (2, 2));
    assert_eq!(env.elapsed(), Duration::from_secs(60));
}

#[workflow]
fn lucky() -> Result<(u64, Vec<u8>, Timestamp)> {
    info!("drawing");
    Ok((random_u64(), random_bytes(5_000), now()))
}

#[test]
fn randomness_follows_the_seed_and_time_begins_in_2026() {
    let mut env = TestEnv::new();
    let (first, bytes, time) = env.crash_everywhere(lucky, ()).unwrap();
    assert_eq!(
        (bytes.len(), time.as_micros()),
        (5_000, 1_767_225_600_000_000)
    );
    assert_eq!(env.log_messages(), [(LogLevel::Info, "drawing".to_owned())]);
    env.set_seed(7);
    assert_ne!(env.run(lucky, ()).unwrap().0, first);
}

#[task]
fn charge(cents: u64) -> Result<String> {
    http("POST https://bank.example.com/charges")
        .json(&cents)
        .send()?
        .successful()?
        .text()
}

#[workflow]
fn pay(cents: u64) -> Result<(String, u16)> {
    let id = invoke(charge, cents)?;
    Ok((
        id,
        http("GET https://bank.example.com/health").send()?.status,
    ))
}

#[test]
fn requests_are_answered_by_stubs() {
    let mut env = TestEnv::new();
    env.stub_http("POST https://bank.example.com/charges", |request| {
        let headers: BTreeMap<_, _> = request.headers.iter().cloned().collect();
        assert_eq!(headers["idempotency-key"], "test.0");
        assert_eq!(request.body.as_deref(), Some(b"500".as_slice()));
        Ok(HttpResponse::new(200, "charge-1"))
    });
    env.stub_http("GET https://bank.example.com/health", |_| {
        Ok(HttpResponse::new(404, ""))
    });
    assert_eq!(
        env.crash_everywhere(pay, 500),
        Ok(("charge-1".to_owned(), 404))
    );
}

#[test]
fn a_single_attempt_of_a_task_can_be_run() {
    let mut env = TestEnv::new();
    assert!(env.run_attempt(third_time, 1, ()).is_err());
    assert_eq!(env.run_attempt(third_time, 3, ()), Ok(3));
}

#[task]
fn confused() -> Result<()> {
    sleep(Duration::from_secs(1))
}

#[test]
fn a_task_cannot_use_operations_of_workflows() {
    let error = TestEnv::new().run_attempt(confused, 1, ()).unwrap_err();
    assert_eq!(
        error.message,
        "confused is a task: only a workflow can set a timer of 1000 ms"
    );
}

thread_local! {
    static STARTS: Cell<u64> = const { Cell::new(0) };
}

fn starts() -> u64 {
    STARTS.set(STARTS.get() + 1);
    STARTS.get()
}

#[workflow]
fn undecided() -> Result<u64> {
    invoke(double, starts())?;
    invoke(double, 0)
}

#[workflow]
fn forgetful() -> Result<u64> {
    let start = starts();
    invoke(double, 0)?;
    Ok(start)
}

#[test]
fn a_workflow_with_different_requests_on_replay_is_detected() {
    let error = TestEnv::new().crash_everywhere(undecided, ()).unwrap_err();
    assert_eq!(error.kind, "nondeterminism");
    let message = "undecided is not deterministic: its request 0 was to call double with 2, and is now to call double with 3.";
    assert!(error.message.starts_with(message), "{}", error.message);
}

#[test]
fn a_workflow_with_a_different_result_on_replay_is_detected() {
    let error = TestEnv::new().crash_everywhere(forgetful, ()).unwrap_err();
    assert_eq!(error.kind, "nondeterminism");
    assert!(
        error
            .message
            .starts_with("forgetful: it ended with Ok(\"1\") without crashes"),
        "{}",
        error.message
    );
}

#[test]
#[should_panic(expected = "no test environment runs this function")]
fn a_host_function_outside_of_an_environment_panics() {
    now();
}
