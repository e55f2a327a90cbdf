//! Guests that try to keep a thread, or to use the host's time and memory out of proportion.

#![expect(
    clippy::disallowed_methods,
    reason = "how long a guest keeps a thread is what the tests measure"
)]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use onward_execution::{Guest, GuestRequest, GuestResponse, GuestTurn};
use onward_journal::{ErrorKind, InvokeResult};
use onward_wasm::{Config, LoadError, LoadedComponent, TaskLimits, WasmRuntime, WorkflowLimits};

use crate::task::call;
use crate::{failed, guests, own, payload};

/// Longest time that a poll or a turn may take: a tick of the clock, and room for a busy machine.
const POLL_MAX: Duration = Duration::from_millis(500);

/// With the clock that the runtime of the other tests lacks.
static RUNTIME: LazyLock<WasmRuntime> = LazyLock::new(|| {
    WasmRuntime::new(Config {
        workflows_max: 16,
        tasks_max: 16,
        ..Config::default()
    })
    .unwrap()
});

fn load(bytes: &[u8]) -> LoadedComponent {
    RUNTIME.load_component(bytes).unwrap()
}

fn flow(body: &str, limits: WorkflowLimits) -> Box<dyn Guest> {
    load(&guests::with_call(body)).new_workflow("tenant", "flow", &payload("[1,2]"), own(), limits)
}

async fn job(body: &str, limits: TaskLimits) -> InvokeResult {
    let input = payload("[1,2]");
    let component = load(&guests::with_call(body));
    component.run_task("job", &input, call(limits)).await
}

/// Grows its memory to 48 MiB.
const GROW: &str = "(drop (memory.grow (i32.const 768)))";

/// Logs `bytes` for ever. It costs a few instructions, while the host copies the text.
fn log_for_ever(bytes: u32) -> String {
    format!(
        "{GROW} (loop (call $log (i32.const 0) (i32.const 65536) (i32.const {bytes})) (br 0)) (unreachable)"
    )
}

/// Polls a task as a busy worker does, and returns how long the longest poll took.
async fn longest_poll(work: impl Future) -> Duration {
    let mut work = std::pin::pin!(work);
    let (since, mut longest) = (Instant::now(), Duration::ZERO);
    std::future::poll_fn(|context| {
        let begun = Instant::now();
        let polled = work.as_mut().poll(context);
        longest = longest.max(begun.elapsed());
        match polled.is_ready() || since.elapsed() > 3 * POLL_MAX {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    longest
}

#[tokio::test]
async fn a_task_that_makes_the_host_copy_yields_and_times_out() {
    for body in [
        log_for_ever(3 << 20),
        log_for_ever(0),
        format!(
            "{GROW} (loop (memory.fill (i32.const 65536) (i32.const 1) (i32.const 50000000)) (br 0)) (unreachable)"
        ),
        "(loop (drop (call $now)) (br 0)) (unreachable)".to_owned(),
    ] {
        let limits = TaskLimits {
            timeout: Duration::from_millis(200),
            ..TaskLimits::default()
        };
        let begun = Instant::now();
        let error = job(&body, limits).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{body}");
        assert!(
            begun.elapsed() < 2 * POLL_MAX,
            "{body}: {:?}",
            begun.elapsed()
        );
        let longest = longest_poll(job(&body, TaskLimits::default())).await;
        assert!(longest < POLL_MAX, "{body}: {longest:?}");
    }
}

#[tokio::test]
async fn a_task_cannot_pass_more_to_the_host_than_a_payload_and_some_room() {
    let body = format!(
        "{GROW} (call $log (i32.const 0) (i32.const 65536) (i32.const 5000000)) (call $ok (i32.const 300) (i32.const 1))"
    );
    let error = job(&body, TaskLimits::default()).await.unwrap_err();
    assert!(
        error.message.contains("too large") || error.message.contains("fuel"),
        "{error}"
    );
}

#[test]
fn a_workflow_that_logs_for_ever_yields_and_ends() {
    let limits = WorkflowLimits {
        fuel_max: 100_000_000,
        ..WorkflowLimits::default()
    };
    let mut guest = flow(&log_for_ever(1 << 20), limits);
    let (mut answer, mut lines) = (None, 0);
    let ending = loop {
        let begun = Instant::now();
        let turn = guest.resume_guest(answer.take());
        assert!(begun.elapsed() < POLL_MAX, "{:?}", begun.elapsed());
        match turn {
            GuestTurn::Requested(GuestRequest::Log { .. }) => {
                answer = Some(GuestResponse::Done);
                lines += 1;
            }
            GuestTurn::Paused => {}
            ending => break ending,
        }
    };
    let error = failed(ending).to_string();
    assert!(error.contains("out of fuel"), "{error}");
    assert!((50..10_000).contains(&lines), "{lines} lines");
}

#[test]
fn a_workflow_that_is_answered_at_once_yields_to_others() {
    let mut guest = flow(
        "(loop (drop (call $is-cancelled)) (br 0)) (unreachable)",
        WorkflowLimits::default(),
    );
    let (mut answer, since) = (None, Instant::now());
    loop {
        assert!(since.elapsed() < 10 * POLL_MAX, "it does not pause");
        match guest.resume_guest(answer.take()) {
            GuestTurn::Requested(_) => answer = Some(GuestResponse::Boolean(false)),
            GuestTurn::Paused => break,
            turn => panic!("{turn:?}"),
        }
    }
    assert!(matches!(guest.resume_guest(None), GuestTurn::Requested(_)));
}

#[test]
fn a_workflow_that_computes_for_too_long_fails() {
    let limits = WorkflowLimits {
        compute_time_max: Duration::from_millis(100),
        ..WorkflowLimits::default()
    };
    let (_, turn) = crate::run_on(&mut *flow(guests::LOOP, limits));
    assert_eq!(
        failed(turn).to_string(),
        "trap: out of time: 100 ms of computation without a request"
    );
}

#[test]
fn a_guest_that_was_suspended_continues_without_a_pause() {
    let mut guest = flow(guests::TIMER, WorkflowLimits::default());
    assert!(matches!(guest.resume_guest(None), GuestTurn::Requested(_)));
    std::thread::sleep(Duration::from_millis(100));
    let turn = guest.resume_guest(Some(GuestResponse::Promise(1)));
    assert!(matches!(turn, GuestTurn::Requested(_)), "{turn:?}");
}

#[test]
fn describe_has_a_deadline_and_holds_up_no_other_component() {
    let endless = guests::parse(
        &include_str!("guest.wat")
            .replace(";;BODY", guests::ECHO)
            .replace(";;DESCRIBED", "")
            .replace(
                "(func (export \"describe\") (result i32)",
                "(func (export \"describe\") (result i32) (loop (br 0))",
            ),
    );
    let begun = Instant::now();
    let loading = std::thread::spawn(move || RUNTIME.load_component(&endless).unwrap_err());
    std::thread::sleep(Duration::from_millis(50));
    load(&guests::with_call("(i32.const 2052)"));
    assert!(
        begun.elapsed() < Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    let error = loading.join().unwrap();
    assert_eq!(
        error,
        LoadError::Describe("it takes longer than 1000 ms".to_owned())
    );
}

#[test]
fn code_above_the_limit_is_refused_before_it_is_compiled() {
    let runtime = WasmRuntime::new(Config {
        workflows_max: 4,
        tasks_max: 4,
        code_bytes_max: 20_000,
        function_bytes_max: 10_000,
        ..Config::default()
    })
    .unwrap();
    let refused = |bytes: &[u8]| runtime.load_component(bytes).unwrap_err().to_string();
    let function = |adds: usize| format!("(func {})", "(drop (i32.const 1))".repeat(adds));
    let module = |functions: &str| guests::parse(&format!("(component (core module {functions}))"));
    let error = refused(&module(&function(4_000)));
    assert!(
        error.starts_with("a function of the component has at least 1"),
        "{error}"
    );
    let error = refused(&module(&function(2_000).repeat(5)));
    assert!(
        error.starts_with("all code of the component has at least 2"),
        "{error}"
    );
    runtime
        .load_component(&guests::with_call(guests::ECHO))
        .unwrap();
}

#[tokio::test]
async fn a_component_is_loaded_without_blocking_the_thread() {
    let bytes: Arc<[u8]> = guests::with_call("(i32.const 2056)").into();
    let all = (0..8).map(|_| {
        let bytes = Arc::clone(&bytes);
        tokio::spawn(async move { RUNTIME.load_component_async(bytes).await })
    });
    for loaded in all.collect::<Vec<_>>() {
        assert_eq!(loaded.await.unwrap().unwrap().functions().len(), 2);
    }
}

#[tokio::test]
async fn an_instance_serves_the_next_call_after_a_long_one() {
    let component = load(&guests::with_call(guests::ECHO));
    for _ in 0..2 {
        let input = payload("[1,2]");
        let result = component.run_task("job", &input, call(TaskLimits::default()));
        assert_eq!(result.await, Ok(input.clone()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A runtime whose guests have 64 MiB together, and a component that grows its memory to 32 MiB
/// before it does anything.
fn small_runtime() -> (WasmRuntime, LoadedComponent) {
    let runtime = WasmRuntime::new(Config {
        workflows_max: 8,
        tasks_max: 8,
        guest_memory_bytes_max: 64 << 20,
        ..Config::default()
    })
    .unwrap();
    let body = format!("(drop (memory.grow (i32.const 511))) {}", guests::TIMER);
    let component = runtime.load_component(&guests::with_call(&body)).unwrap();
    (runtime, component)
}

#[test]
fn a_workflow_beyond_the_memory_of_all_guests_is_evicted_and_another_tenant_is_not() {
    let (runtime, component) = small_runtime();
    let limits = WorkflowLimits::default();
    let input = payload("[1,2]");
    let flow_of = |tenant| component.new_workflow(tenant, "flow", &input, own(), limits);
    let mut parked = flow_of("greedy");
    assert!(matches!(parked.resume_guest(None), GuestTurn::Requested(_)));
    assert_eq!(runtime.free_workflow_slots(), 8 - 1);
    assert_eq!(flow_of("greedy").resume_guest(None), GuestTurn::Evicted);
    let mut other = flow_of("other");
    assert!(matches!(other.resume_guest(None), GuestTurn::Requested(_)));
    assert_eq!(runtime.free_workflow_slots(), 0, "memory is low");
    assert!(!runtime.has_room_for_workflow("greedy"));
    drop(parked);
    assert!(runtime.has_room_for_workflow("greedy"));
    let again = flow_of("third").resume_guest(None);
    assert!(matches!(again, GuestTurn::Requested(_)), "{again:?}");
}

#[tokio::test]
async fn an_attempt_beyond_the_memory_of_all_guests_fails_and_may_be_retried() {
    let (runtime, component) = small_runtime();
    let input = payload("[1,2]");
    let flow =
        || component.new_workflow("tenant", "flow", &input, own(), WorkflowLimits::default());
    let mut parked = flow();
    assert!(matches!(parked.resume_guest(None), GuestTurn::Requested(_)));
    let error = component
        .run_task("job", &input, call(TaskLimits::default()))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind.as_str(), error.retryable),
        ("out_of_memory", true),
        "{error}"
    );
    drop((parked, runtime));
}
