//! Both workflows in virtual time, with stubs in place of workers.

use onward::prelude::*;
use onward::testing::TestEnv;
use serde::Deserialize as _;

use crate::{Errand, greetings, listen, relay};

fn errand(attempts: u32) -> Errand {
    Errand {
        task: "charge".to_owned(),
        input: Json::from(5),
        attempts,
        wait_ms: 100,
        not_on: vec!["card_declined".to_owned()],
        timeout_ms: None,
        at_most_once: false,
    }
}

fn failing(kind: &'static str) -> TestEnv {
    let mut env = TestEnv::new();
    env.stub_named("charge", move |_: Json| {
        Err::<Json, _>(Error::new(kind, "as asked for"))
    });
    env
}

#[test]
fn a_relay_returns_what_the_task_returned() {
    let mut env = TestEnv::new();
    env.stub_named("charge", |cents: u64| Ok(cents + 1));
    assert_eq!(env.crash_everywhere(relay, errand(1)), Ok(Json::from(6)));
}

#[test]
fn a_relay_waits_as_long_before_every_attempt() {
    let mut env = failing("bank_closed");
    assert_eq!(
        env.run(relay, errand(3)),
        Err(Error::new("bank_closed", "as asked for"))
    );
    assert_eq!(env.elapsed(), Duration::from_millis(200));
}

#[test]
fn a_relay_does_not_try_again_what_is_final() {
    let mut env = failing("card_declined");
    assert!(
        env.run(relay, errand(3))
            .is_err_and(|error| error.is("card_declined"))
    );
    assert_eq!(env.elapsed(), Duration::ZERO);
}

#[test]
fn only_the_task_has_to_be_said() {
    let mut env = TestEnv::new();
    env.stub_named("charge", |input: Json| Ok(input));
    let short: Errand = read(r#"{"task":"charge"}"#);
    assert_eq!(short.attempts, 1);
    assert_eq!(env.run(relay, short), Ok(Json::Null));
}

#[test]
fn greetings_come_in_the_order_of_the_names() {
    let mut env = TestEnv::new();
    env.stub_named("greet", |name: String| Ok(format!("hello {name}")));
    let names = vec!["Ada".to_owned(), "Grace".to_owned()];
    assert_eq!(
        env.crash_everywhere(greetings, &names),
        Ok(vec!["hello Ada".to_owned(), "hello Grace".to_owned()])
    );
}

#[test]
fn a_listener_returns_what_it_is_told() {
    let mut env = TestEnv::new();
    env.signal("go", &7);
    assert_eq!(env.crash_everywhere(listen, "go"), Ok(Json::from(7)));
}

fn read(text: &str) -> Errand {
    Errand::deserialize(text.parse::<Json>().unwrap()).unwrap()
}
