//! A guest that was written with the Rust SDK: `examples/workflows/journals`.

use std::sync::Arc;

use onward_execution::{AwaitMode, GuestRequest, GuestResponse, GuestTurn, JoinSetNext};
use onward_journal::InvokeKind;
use onward_wasm::{
    ComponentEgress, GuestFunctionKind, GuestHttpClient, HttpConfig, LoadedComponent, TaskCall,
    TaskLimits, WorkflowLimits,
};

use crate::task::Fixed;
use crate::{failed, load, own, payload};

pub(crate) fn bytes() -> Vec<u8> {
    std::fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/workflows/built/journals.wasm"
    ))
    .unwrap()
}

fn component() -> LoadedComponent {
    load(&bytes())
}

#[test]
fn the_component_lists_its_functions() {
    let component = component();
    let kind = |name: &str| component.find_function(name).map(|function| function.kind);
    assert_eq!(
        (kind("echo"), kind("step"), kind("none")),
        (
            Some(GuestFunctionKind::Workflow),
            Some(GuestFunctionKind::Task),
            None
        )
    );
}

#[test]
fn echo_returns_its_input() {
    let input = payload("{\"a\":[1,\"é\",null]}");
    let mut guest =
        component().new_workflow("tenant", "echo", &input, own(), WorkflowLimits::default());
    assert_eq!(guest.resume_guest(None), GuestTurn::Completed(Ok(input)));
}

#[test]
fn chain_performs_its_steps_in_order() {
    let input = payload("{\"steps\":3,\"work\":4}");
    let mut guest =
        component().new_workflow("tenant", "chain", &input, own(), WorkflowLimits::default());
    let mut turn = guest.resume_guest(None);
    for promise in 0..3 {
        let GuestTurn::Requested(GuestRequest::Invoke {
            kind,
            function,
            input,
            ..
        }) = turn
        else {
            panic!("{turn:?}")
        };
        assert_eq!(
            (kind, &*function, input.as_str()),
            (InvokeKind::Function, "step", "\"xxxx\"")
        );
        let wait = GuestRequest::Await {
            promises: vec![promise],
            wait: AwaitMode::One,
        };
        assert_eq!(
            guest.resume_guest(Some(GuestResponse::Promise(promise))),
            GuestTurn::Requested(wait)
        );
        turn = guest.resume_guest(Some(GuestResponse::Outcome(Ok(payload("4")))));
    }
    assert_eq!(turn, GuestTurn::Completed(Ok(payload("3"))));
}

#[test]
fn fan_out_takes_results_from_a_join_set() {
    let mut guest = component().new_workflow(
        "tenant",
        "fan_out",
        &payload("{\"steps\":1}"),
        own(),
        WorkflowLimits::default(),
    );
    assert_eq!(
        guest.resume_guest(None),
        GuestTurn::Requested(GuestRequest::CreateJoinSet)
    );
    assert!(matches!(
        guest.resume_guest(Some(GuestResponse::Promise(0))),
        GuestTurn::Requested(GuestRequest::Invoke { .. })
    ));
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Promise(1))),
        GuestTurn::Requested(GuestRequest::SubmitToJoinSet { set: 0, promise: 1 })
    );
    let next = GuestTurn::Requested(GuestRequest::NextResult {
        set: 0,
        timeout_ms: None,
    });
    assert_eq!(guest.resume_guest(Some(GuestResponse::Done)), next);
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::NextResult(JoinSetNext::Result(
            1,
            Ok(payload("0"))
        )))),
        next
    );
    let mut turn = guest.resume_guest(Some(GuestResponse::NextResult(JoinSetNext::Empty)));
    if turn == GuestTurn::Requested(GuestRequest::CloseJoinSet { set: 0 }) {
        turn = guest.resume_guest(Some(GuestResponse::Done));
    }
    assert_eq!(turn, GuestTurn::Completed(Ok(payload("1"))));
}

#[test]
fn waiter_waits_for_a_signal() {
    let start = || {
        component().new_workflow(
            "tenant",
            "waiter",
            &payload("{\"timeout_ms\":9}"),
            own(),
            WorkflowLimits::default(),
        )
    };
    let asks = GuestTurn::Requested(GuestRequest::AwaitSignal {
        name: "go".parse().unwrap(),
        timeout_ms: Some(9),
    });
    for (signal, result) in [(Some(payload("{\"a\":1}")), "{\"a\":1}"), (None, "null")] {
        let mut guest = start();
        assert_eq!(guest.resume_guest(None), asks);
        assert_eq!(
            guest.resume_guest(Some(GuestResponse::Signal(signal))),
            GuestTurn::Completed(Ok(payload(result)))
        );
    }
}

#[test]
fn counter_continues_as_a_new_execution() {
    let mut guest = component().new_workflow(
        "tenant",
        "counter",
        &payload("3"),
        own(),
        WorkflowLimits::default(),
    );
    assert!(matches!(
        guest.resume_guest(None),
        GuestTurn::Requested(GuestRequest::AwaitSignal { .. })
    ));
    let asks = GuestTurn::Requested(GuestRequest::ContinueAsNew {
        input: payload("2"),
    });
    assert_eq!(guest.resume_guest(Some(GuestResponse::Signal(None))), asks);
    assert!(matches!(
        guest.resume_guest(Some(GuestResponse::Done)),
        GuestTurn::Completed(_)
    ));
}

#[test]
fn fail_fails_with_its_kind() {
    let mut guest = component().new_workflow(
        "tenant",
        "fail",
        &payload("\"card_declined\""),
        own(),
        WorkflowLimits::default(),
    );
    assert_eq!(
        failed(guest.resume_guest(None)).to_string(),
        "card_declined: as requested"
    );
}

#[tokio::test]
async fn step_runs_as_a_task() {
    let call = TaskCall {
        owner: "tenant".into(),
        context: own(),
        limits: TaskLimits::default(),
        http: ComponentEgress {
            http: GuestHttpClient::new(HttpConfig::default()).unwrap(),
            hosts: [].into(),
        },
        services: Arc::new(Fixed::default()),
    };
    assert_eq!(
        component()
            .run_task("step", &payload("\"xxxx\""), call)
            .await,
        Ok(payload("4"))
    );
}
