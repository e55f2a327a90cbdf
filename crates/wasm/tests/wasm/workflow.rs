//! Workflows, one turn after the other.

use onward_base::Timestamp;
use onward_execution::{AwaitMode, GuestLogLevel, GuestRequest, GuestResponse, GuestTurn};
use onward_journal::{ErrorKind, ExecutionError};
use onward_wasm::{Config, WasmRuntime, WorkflowLimits};

use crate::{failed, flow, guests, load, own, payload, run_on};

fn limits() -> WorkflowLimits {
    WorkflowLimits::default()
}

fn await_one(promise: u32) -> GuestTurn {
    GuestTurn::Requested(GuestRequest::Await {
        promises: vec![promise],
        wait: AwaitMode::One,
    })
}

#[test]
fn a_workflow_requests_and_continues_with_the_response() {
    let mut guest = flow(guests::TIMER, limits());
    assert_eq!(
        guest.resume_guest(None),
        GuestTurn::Requested(GuestRequest::ScheduleTimer { duration_ms: 5 })
    );
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Promise(7))),
        await_one(7)
    );
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Outcome(Ok(payload("{\"a\":1}"))))),
        GuestTurn::Completed(Ok(payload("{\"a\":1}")))
    );
}

#[test]
fn a_refused_request_is_a_failure_for_the_guest() {
    let cancelled = ExecutionError::new(ErrorKind::Cancelled, "stop").into_permanent();
    let mut guest = flow(guests::TIMER, limits());
    guest.resume_guest(None);
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Refused(cancelled.clone()))),
        GuestTurn::Completed(Err(cancelled.clone()))
    );
    let mut guest = flow(guests::TIMER, limits());
    guest.resume_guest(None);
    guest.resume_guest(Some(GuestResponse::Promise(0)));
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Refused(cancelled.clone()))),
        GuestTurn::Completed(Err(cancelled))
    );
}

#[test]
fn a_workflow_returns_its_input() {
    assert_eq!(
        flow(guests::ECHO, limits()).resume_guest(None),
        GuestTurn::Completed(Ok(payload("[1,2]")))
    );
}

#[test]
fn an_unexpected_response_is_a_bug_in_the_host() {
    let mut guest = flow(guests::TIMER, limits());
    guest.resume_guest(None);
    let error = failed(guest.resume_guest(Some(GuestResponse::Boolean(true))));
    assert_eq!(
        error.to_string(),
        "trap: a bug in the host: unexpected response to `timer`"
    );
    let out_of_turn = "trap: a bug in the host: a response is missing or out of order";
    assert_eq!(
        failed(flow(guests::TIMER, limits()).resume_guest(Some(GuestResponse::Done))).to_string(),
        out_of_turn
    );
    let mut guest = flow(guests::TIMER, limits());
    guest.resume_guest(None);
    assert_eq!(failed(guest.resume_guest(None)).to_string(), out_of_turn);
    let again = failed(guest.resume_guest(None)).to_string();
    assert!(again.contains("bug in the host"), "{again}");
}

#[test]
fn an_endless_loop_pauses_and_then_runs_out_of_fuel() {
    let tight = WorkflowLimits {
        fuel_slice: 10_000,
        fuel_max: 100_000,
        ..limits()
    };
    let (pauses, turn) = run_on(&mut *flow(guests::LOOP, tight));
    assert_eq!(pauses, 9);
    let message = "trap: out of fuel: 100000 instructions without a request";
    assert_eq!(failed(turn).to_string(), message);
}

#[test]
fn fuel_counts_from_the_last_request_and_is_deterministic() {
    // A hundred rounds of a few thousand instructions, each with a request.
    let body = r#"
        (local $round i32) (local $n i32)
        (loop $rounds
            (drop (call $now))
            (local.set $n (i32.const 1000))
            (loop $busy
                (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                (br_if $busy (local.get $n)))
            (local.set $round (i32.add (local.get $round) (i32.const 1)))
            (br_if $rounds (i32.lt_u (local.get $round) (i32.const 100))))
        (call $ok (local.get $input) (local.get $input-length))"#;
    let tight = WorkflowLimits {
        fuel_slice: 2_000,
        fuel_max: 20_000,
        ..limits()
    };
    let dialogue = || {
        let mut guest = flow(body, tight);
        let mut turns = vec![guest.resume_guest(None)];
        while let Some(turn) = turns
            .last()
            .filter(|turn| !matches!(turn, GuestTurn::Completed(_)))
        {
            let answer = matches!(turn, GuestTurn::Requested(_))
                .then_some(GuestResponse::Time(Timestamp::EPOCH));
            turns.push(guest.resume_guest(answer));
        }
        turns
    };
    let first = dialogue();
    assert_eq!(
        first.last(),
        Some(&GuestTurn::Completed(Ok(payload("[1,2]"))))
    );
    assert!(
        first
            .iter()
            .filter(|turn| **turn == GuestTurn::Paused)
            .count()
            > 100,
        "it paused between the questions"
    );
    assert_eq!((dialogue(), dialogue()), (first.clone(), first));
}

#[test]
fn a_memory_bomb_fails_and_other_guests_continue() {
    let mut neighbour = flow(guests::TIMER, limits());
    neighbour.resume_guest(None);
    let small = WorkflowLimits {
        memory_bytes_max: 1 << 20,
        ..limits()
    };
    let error = failed(run_on(&mut *flow(guests::BOMB, small)).1);
    let message = "unreachable code was reached (it was refused 1114112 bytes of memory, the limit is 1048576)";
    assert_eq!((error.kind, &*error.message), (ErrorKind::Trap, message));
    assert_eq!(
        neighbour.resume_guest(Some(GuestResponse::Promise(1))),
        await_one(1)
    );
}

#[test]
fn a_panic_message_is_quoted() {
    let body = "(call $log (i32.const 3) (i32.const 300) (i32.const 15)) (unreachable)";
    let mut guest = flow(body, limits());
    let line = GuestRequest::Log {
        level: GuestLogLevel::Error,
        message: "the end is near".into(),
    };
    assert_eq!(guest.resume_guest(None), GuestTurn::Requested(line));
    let error = failed(guest.resume_guest(Some(GuestResponse::Done)));
    assert_eq!(
        error.to_string(),
        "trap: unreachable code was reached: the end is near"
    );
}

#[test]
fn a_panic_message_of_several_lines_is_quoted_whole() {
    let line = "(call $log (i32.const 3) (i32.const 300) (i32.const 15))";
    let mut guest = flow(
        &format!("{line} (drop (call $now)) {line} {line} (unreachable)"),
        limits(),
    );
    guest.resume_guest(None);
    guest.resume_guest(Some(GuestResponse::Done));
    guest.resume_guest(Some(GuestResponse::Time(Timestamp::EPOCH)));
    guest.resume_guest(Some(GuestResponse::Done));
    let error = failed(guest.resume_guest(Some(GuestResponse::Done)));
    assert_eq!(
        error.to_string(),
        "trap: unreachable code was reached: the end is near the end is near"
    );
}

#[test]
fn nan_has_the_same_bits_on_every_machine() {
    // On x86 the sign of 0/0 would be set.
    let body = r#"
        (local $zero f32)
        (local.set $zero (f32.convert_i32_u (i32.sub (local.get $input) (local.get $input))))
        (i32.store8 (i32.const 2100) (i32.add (i32.const 48)
            (i32.shr_u (i32.reinterpret_f32 (f32.div (local.get $zero) (local.get $zero))) (i32.const 31))))
        (call $ok (i32.const 2100) (i32.const 1))"#;
    assert_eq!(
        flow(body, limits()).resume_guest(None),
        GuestTurn::Completed(Ok(payload("0")))
    );
}

#[test]
fn endless_recursion_exhausts_the_stack() {
    let body = "(call $call (local.get 0) (local.get 1) (local.get 2) (local.get 3))";
    let error = failed(run_on(&mut *flow(body, limits())).1);
    assert_eq!(error.to_string(), "trap: the call stack is exhausted");
}

#[test]
fn a_large_payload_is_refused_in_every_direction() {
    let small = WorkflowLimits {
        payload_bytes_max: 10,
        ..limits()
    };
    let component = load(&guests::with_call(guests::ECHO));
    let large = payload("\"0123456789\"");
    let error = failed(
        component
            .new_workflow("tenant", "flow", &large, own(), small)
            .resume_guest(None),
    );
    assert_eq!(
        error.to_string(),
        "too_large: the input has 12 bytes, the limit is 10"
    );
    assert!(!error.retryable);
    let mut guest = flow(guests::TIMER, small);
    guest.resume_guest(None);
    guest.resume_guest(Some(GuestResponse::Promise(0)));
    let error = failed(guest.resume_guest(Some(GuestResponse::Outcome(Ok(large)))));
    assert_eq!(
        error.to_string(),
        "too_large: a result has 12 bytes, the limit is 10"
    );
    let error = failed(flow("(call $ok (i32.const 300) (i32.const 15))", small).resume_guest(None));
    assert_eq!(
        error.to_string(),
        "too_large: the result has 15 bytes, the limit is 10"
    );
    let body = "(call $continue-as-new (i32.const 300) (i32.const 15)) (unreachable)";
    let error = failed(flow(body, small).resume_guest(None));
    assert_eq!(
        error.to_string(),
        "too_large: the input has 15 bytes, the limit is 10"
    );
}

#[test]
fn a_result_is_json() {
    let error =
        failed(flow("(call $ok (i32.const 300) (i32.const 15))", limits()).resume_guest(None));
    assert_eq!(error.kind.as_str(), "invalid_payload");
    let not_utf8 =
        "(i32.store8 (i32.const 301) (i32.const 255)) (call $ok (i32.const 300) (i32.const 15))";
    let error = failed(flow(not_utf8, limits()).resume_guest(None));
    assert_eq!(error.kind, ErrorKind::Trap);
    assert!(error.message.contains("utf-8"), "{error}");
    let out_of_bounds = "(call $ok (i32.const -1) (i32.const 100))";
    assert_eq!(
        failed(flow(out_of_bounds, limits()).resume_guest(None)).kind,
        ErrorKind::Trap
    );
}

#[test]
fn http_requests_of_tasks_are_refused_in_workflows() {
    let body = r#"
        (call $http (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 2048))
        (i32.const 2048)"#;
    assert_eq!(
        failed(flow(body, limits()).resume_guest(None))
            .kind
            .as_str(),
        "not_in_workflow"
    );
}

#[test]
fn a_workflow_reads_its_own_context() {
    let body = r#"
        (call $own (i32.const 2048))
        (i32.store8 (i32.const 2100) (i32.add (i32.load (i32.const 2064)) (i32.const 48)))
        (call $ok (i32.const 2100) (i32.const 1))"#;
    assert_eq!(
        flow(body, limits()).resume_guest(None),
        GuestTurn::Completed(Ok(payload("2"))),
        "the attempt"
    );
}

#[test]
fn random_bytes_have_the_requested_length() {
    let body = r#"
        (call $random (i32.const 1) (i32.const 2048))
        (call $ok (i32.load (i32.const 2048)) (i32.const 1))"#;
    let mut guest = flow(body, limits());
    assert_eq!(
        guest.resume_guest(None),
        GuestTurn::Requested(GuestRequest::Random { length: 1 })
    );
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Random([b'7'].into()))),
        GuestTurn::Completed(Ok(payload("7")))
    );
    let mut guest = flow(body, limits());
    guest.resume_guest(None);
    assert!(
        failed(guest.resume_guest(Some(GuestResponse::Random([1, 2].into()))))
            .message
            .contains("bug in the host")
    );
    let greedy = "(call $random (i32.const 4097) (i32.const 2048)) (unreachable)";
    assert_eq!(
        failed(flow(greedy, limits()).resume_guest(None))
            .kind
            .as_str(),
        "too_large"
    );
}

#[test]
fn only_workflows_run_as_workflows() {
    let component = load(&guests::with_call(guests::ECHO));
    for (name, message) in [
        ("job", "`job` is a task, not a workflow"),
        ("none", "has no function `none`"),
    ] {
        let error = failed(
            component
                .new_workflow("tenant", name, &payload("1"), own(), limits())
                .resume_guest(None),
        );
        assert_eq!(error.kind.as_str(), "unknown_function");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn a_workflow_waits_for_capacity_and_frees_it() {
    let runtime = WasmRuntime::new(Config {
        workflows_max: 4,
        tasks_max: 1,
        ..Config::default()
    })
    .unwrap();
    let component = runtime
        .load_component(&guests::with_call(guests::TIMER))
        .unwrap();
    let start = || component.new_workflow("tenant", "flow", &payload("1"), own(), limits());
    let mut guests: Vec<_> = (0..4).map(|_| start()).collect();
    assert_eq!(
        runtime.free_workflow_slots(),
        4,
        "nothing is instantiated before the first turn"
    );
    for guest in &mut guests {
        assert!(matches!(guest.resume_guest(None), GuestTurn::Requested(_)));
    }
    let mut late = start();
    assert_eq!(
        (late.resume_guest(None), late.resume_guest(None)),
        (GuestTurn::Paused, GuestTurn::Paused)
    );
    guests.pop();
    assert!(matches!(late.resume_guest(None), GuestTurn::Requested(_)));
    assert_eq!(runtime.free_workflow_slots(), 0);
    drop((guests, late));
    assert_eq!(runtime.free_workflow_slots(), 4);
}

#[test]
fn a_guest_may_move_between_threads() {
    let mut guest = flow(guests::TIMER, limits());
    guest.resume_guest(None);
    let turn = std::thread::spawn(move || guest.resume_guest(Some(GuestResponse::Promise(3))))
        .join()
        .unwrap();
    assert_eq!(turn, await_one(3));
}
