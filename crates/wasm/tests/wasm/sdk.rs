//! A guest that was written with the Rust SDK: `examples/workflows/journals`.

use std::sync::Arc;

use onward_execution::{Answer, Request, Taken, Turn, WaitFor};
use onward_journal::InvokeKind;
use onward_wasm::{Component, Egress, Http, HttpConfig, Kind, TaskCall, TaskLimits, WorkflowLimits};

use crate::task::Fixed;
use crate::{failed, load, own, payload};

pub(crate) fn bytes() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows/built/journals.wasm")).unwrap()
}

fn component() -> Component {
    load(&bytes())
}

#[test]
fn it_says_what_it_can_do() {
    let component = component();
    let kind = |name: &str| component.function(name).map(|function| function.kind);
    assert_eq!((kind("echo"), kind("step"), kind("none")), (Some(Kind::Workflow), Some(Kind::Task), None));
}

#[test]
fn echo_returns_its_input() {
    let input = payload("{\"a\":[1,\"é\",null]}");
    let mut guest = component().workflow("echo", &input, own(), WorkflowLimits::default());
    assert_eq!(guest.turn(None), Turn::Ends(Ok(input)));
}

#[test]
fn chain_does_one_step_after_the_other() {
    let input = payload("{\"steps\":3,\"work\":4}");
    let mut guest = component().workflow("chain", &input, own(), WorkflowLimits::default());
    let mut turn = guest.turn(None);
    for promise in 0..3 {
        let Turn::Asks(Request::Invoke { kind, function, input, .. }) = turn else { panic!("{turn:?}") };
        assert_eq!((kind, &*function, input.as_str()), (InvokeKind::Function, "step", "\"xxxx\""));
        let wait = Request::Await { promises: vec![promise], wait: WaitFor::One };
        assert_eq!(guest.turn(Some(Answer::Promise(promise))), Turn::Asks(wait));
        turn = guest.turn(Some(Answer::Outcome(Ok(payload("4")))));
    }
    assert_eq!(turn, Turn::Ends(Ok(payload("3"))));
}

#[test]
fn fan_out_takes_results_from_a_join_set() {
    let mut guest = component().workflow("fan_out", &payload("{\"steps\":1}"), own(), WorkflowLimits::default());
    assert_eq!(guest.turn(None), Turn::Asks(Request::JoinSet));
    assert!(matches!(guest.turn(Some(Answer::Promise(0))), Turn::Asks(Request::Invoke { .. })));
    assert_eq!(guest.turn(Some(Answer::Promise(1))), Turn::Asks(Request::Submit { set: 0, promise: 1 }));
    let next = Turn::Asks(Request::Next { set: 0, timeout_ms: None });
    assert_eq!(guest.turn(Some(Answer::Done)), next);
    assert_eq!(guest.turn(Some(Answer::Taken(Taken::Result(1, Ok(payload("0")))))), next);
    let mut turn = guest.turn(Some(Answer::Taken(Taken::Empty)));
    if turn == Turn::Asks(Request::Close { set: 0 }) {
        turn = guest.turn(Some(Answer::Done));
    }
    assert_eq!(turn, Turn::Ends(Ok(payload("1"))));
}

#[test]
fn waiter_waits_for_a_signal() {
    let start = || component().workflow("waiter", &payload("{\"timeout_ms\":9}"), own(), WorkflowLimits::default());
    let asks = Turn::Asks(Request::Signal { name: "go".parse().unwrap(), timeout_ms: Some(9) });
    for (signal, result) in [(Some(payload("{\"a\":1}")), "{\"a\":1}"), (None, "null")] {
        let mut guest = start();
        assert_eq!(guest.turn(None), asks);
        assert_eq!(guest.turn(Some(Answer::Signal(signal))), Turn::Ends(Ok(payload(result))));
    }
}

#[test]
fn counter_goes_on_as_a_new_execution() {
    let mut guest = component().workflow("counter", &payload("3"), own(), WorkflowLimits::default());
    assert!(matches!(guest.turn(None), Turn::Asks(Request::Signal { .. })));
    let asks = Turn::Asks(Request::ContinueAsNew { input: payload("2") });
    assert_eq!(guest.turn(Some(Answer::Signal(None))), asks);
    assert!(matches!(guest.turn(Some(Answer::Done)), Turn::Ends(_)));
}

#[test]
fn fail_fails_with_its_kind() {
    let mut guest = component().workflow("fail", &payload("\"card_declined\""), own(), WorkflowLimits::default());
    assert_eq!(failed(guest.turn(None)).to_string(), "card_declined: as asked for");
}

#[tokio::test]
async fn step_runs_as_a_task() {
    let call = TaskCall {
        owner: "tenant".into(),
        context: own(),
        limits: TaskLimits::default(),
        http: Egress { http: Http::new(HttpConfig::default()).unwrap(), hosts: [].into() },
        services: Arc::new(Fixed::default()),
    };
    assert_eq!(component().task("step", &payload("\"xxxx\""), call).await, Ok(payload("4")));
}
