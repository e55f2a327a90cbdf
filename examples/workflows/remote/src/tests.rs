//! The workflows in virtual time, with stubs instead of workers.

use onward::prelude::*;
use onward::testing::TestEnv;
use serde::Deserialize as _;

use crate::{TaskCall, greetings, listen, relay};

fn charge_call(max_attempts: u32) -> TaskCall {
    TaskCall {
        task: "charge".to_owned(),
        input: Json::from(5),
        max_attempts,
        interval_ms: 100,
        non_retryable: vec!["card_declined".to_owned()],
        timeout_ms: None,
        at_most_once: false,
    }
}

fn failing(kind: &'static str) -> TestEnv {
    let mut env = TestEnv::new();
    env.stub_named("charge", move |_: Json| {
        Err::<Json, _>(Error::new(kind, "as requested"))
    });
    env
}

#[test]
fn a_relay_returns_what_the_task_returned() {
    let mut env = TestEnv::new();
    env.stub_named("charge", |cents: u64| Ok(cents + 1));
    assert_eq!(
        env.crash_everywhere(relay, charge_call(1)),
        Ok(Json::from(6))
    );
}

#[test]
fn a_relay_retries_at_a_constant_interval() {
    let mut env = failing("bank_closed");
    assert_eq!(
        env.run(relay, charge_call(3)),
        Err(Error::new("bank_closed", "as requested"))
    );
    assert_eq!(env.elapsed(), Duration::from_millis(200));
}

#[test]
fn a_relay_does_not_retry_a_non_retryable_kind() {
    let mut env = failing("card_declined");
    assert!(
        env.run(relay, charge_call(3))
            .is_err_and(|error| error.has_kind("card_declined"))
    );
    assert_eq!(env.elapsed(), Duration::ZERO);
}

#[test]
fn only_the_task_is_required() {
    let mut env = TestEnv::new();
    env.stub_named("charge", |input: Json| Ok(input));
    let short: TaskCall = read(r#"{"task":"charge"}"#);
    assert_eq!(short.max_attempts, 1);
    assert_eq!(env.run(relay, short), Ok(Json::Null));
}

#[test]
fn greetings_are_in_the_order_of_the_names() {
    let mut env = TestEnv::new();
    env.stub_named("greet", |name: String| Ok(format!("hello {name}")));
    let names = vec!["Ada".to_owned(), "Grace".to_owned()];
    assert_eq!(
        env.crash_everywhere(greetings, &names),
        Ok(vec!["hello Ada".to_owned(), "hello Grace".to_owned()])
    );
}

#[test]
fn a_listener_returns_the_payload_of_its_signal() {
    let mut env = TestEnv::new();
    env.signal("go", &7);
    assert_eq!(env.crash_everywhere(listen, "go"), Ok(Json::from(7)));
}

fn read(text: &str) -> TaskCall {
    TaskCall::deserialize(text.parse::<Json>().unwrap()).unwrap()
}
