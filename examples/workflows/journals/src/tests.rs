//! Tests of each function, because the engine's tests rely on them.

use onward::prelude::*;
use onward::testing::TestEnv;

use crate::basics::{Failures, Load, WaitOptions, compensate, flaky, step};
use crate::outside::http_task;
use crate::seed::{Approval, Lookup, Order, fetch_user, send_email, send_sms};
use crate::{
    blocking_signal, buffered_signal, chain, counter, echo, fail, fan_out, full_example,
    http_by_task, http_get, parent, persistent, saga, sleeper, trap, waiter,
};

#[test]
fn the_full_example_fetches_once_and_sends_the_email_twice() {
    let mut env = TestEnv::new();
    let sent = env
        .crash_everywhere(full_example, Lookup { id: 42 })
        .unwrap();
    assert_eq!(
        sent,
        ["sms to +44 20 7946 0000", "email to ada@example.org"]
    );
    assert_eq!(
        (
            env.call_count(fetch_user),
            env.call_count(send_email),
            env.call_count(send_sms)
        ),
        (1, 2, 1)
    );
}

#[test]
fn an_order_is_approved_by_a_signal_before_or_during_the_wait() {
    let mut env = TestEnv::new();
    env.signal("user_approval", &Approval { approved: true });
    assert!(
        env.crash_everywhere(buffered_signal, Order { order: 1 })
            .unwrap()
            .approved
    );
    let mut env = TestEnv::new();
    env.signal_at(
        Duration::from_secs(7_200),
        "user_approval",
        &Approval { approved: true },
    );
    assert!(
        env.crash_everywhere(blocking_signal, Order { order: 1 })
            .unwrap()
            .approved
    );
}

#[test]
fn echo_returns_any_json() {
    let input: Json = Json::from(vec![Json::Null, Json::from(1.5), Json::from("x")]);
    assert_eq!(TestEnv::new().run(echo, &input), Ok(input));
}

#[test]
fn chain_and_fan_out_run_each_step_once() {
    let mut env = TestEnv::new();
    assert_eq!(
        env.crash_everywhere(chain, Load { steps: 5, work: 3 }),
        Ok(5)
    );
    assert_eq!(env.recorded_inputs(step), ["xxx"; 5]);
    assert_eq!(
        env.crash_everywhere(fan_out, Load { steps: 5, work: 0 }),
        Ok(5)
    );
    assert_eq!(env.call_count(step), 5);
}

#[test]
fn sleep_and_wait_take_virtual_time() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(sleeper, 1_500), Ok(()));
    assert_eq!(env.elapsed(), Duration::from_millis(1_500));
    assert_eq!(
        env.run(
            waiter,
            WaitOptions {
                timeout_ms: Some(20)
            }
        ),
        Ok(None)
    );
    env.signal("go", &"now");
    assert_eq!(
        env.run(waiter, WaitOptions { timeout_ms: None }),
        Ok(Some(Json::from("now")))
    );
}

#[test]
fn a_parent_calls_two_children() {
    assert_eq!(TestEnv::new().crash_everywhere(parent, 5), Ok(7));
}

#[test]
fn a_cancelled_saga_compensates() {
    let mut env = TestEnv::new();
    env.cancel_at(Duration::from_secs(1));
    assert!(
        env.crash_everywhere(saga, "seat")
            .is_err_and(|error| error.is_cancelled())
    );
    assert_eq!(env.recorded_inputs(compensate), ["seat"]);
}

#[test]
fn a_counter_adds_buffered_signals_and_counts_down() {
    let mut env = TestEnv::new();
    env.signal("add", &2_u64);
    assert_eq!(env.crash_everywhere(counter, 3), Ok(0));
}

#[test]
fn failures_have_the_requested_kind_and_count() {
    let mut env = TestEnv::new();
    assert!(
        env.run(fail, "card_declined")
            .is_err_and(|error| error.has_kind("card_declined"))
    );
    assert_eq!(
        env.run(
            persistent,
            Failures {
                count: 2,
                non_retryable: false
            }
        ),
        Ok(3)
    );
    assert!(
        env.run(
            persistent,
            Failures {
                count: 2,
                non_retryable: true
            }
        )
        .is_err()
    );
    assert_eq!(env.call_count(flaky), 1);
}

#[test]
#[should_panic(expected = "this function is broken")]
fn a_trap_panics() {
    let _ = TestEnv::new().run(trap, ());
}

#[test]
fn a_request_returns_the_response_or_the_failure() {
    let mut env = TestEnv::new();
    let url = "https://api.example.com/a";
    env.stub_http("GET https://api.example.com/a", |_| {
        Ok(onward::HttpResponse::new(404, "nothing"))
    });
    assert_eq!(env.run(http_get, url).unwrap().status, 404);
    assert_eq!(env.run(http_by_task, url).unwrap().status, 404);
    env.stub_http("GET https://api.example.com/a", |_| {
        Ok(onward::HttpResponse::new(503, "busy"))
    });
    assert!(
        env.run(http_by_task, url)
            .is_err_and(|error| error.has_kind("http_503"))
    );
    assert_eq!(env.call_count(http_task), 3);
}
