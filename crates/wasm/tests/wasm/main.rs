//! Guests written as WAT text, loaded and run; and one that was written with the SDK.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]

mod guests;
mod hostile;
mod http;
mod load;
mod sdk;
mod task;
mod wasi;
mod workflow;

use std::sync::LazyLock;
use std::time::Duration;

use onward_base::Payload;
use onward_execution::{Guest, GuestTurn};
use onward_journal::ExecutionError;
use onward_wasm::{CallContext, Config, LoadedComponent, WasmRuntime, WorkflowLimits};

/// Many tests, one pool.
static RUNTIME: LazyLock<WasmRuntime> = LazyLock::new(|| {
    WasmRuntime::new(Config {
        workflows_max: 64,
        tasks_max: 16,
        // Tests count pauses, which must not depend on how busy the machine is.
        tick_interval: Duration::from_secs(3_600),
        ..Config::default()
    })
    .unwrap()
});

fn load(bytes: &[u8]) -> LoadedComponent {
    RUNTIME.load_component(bytes).unwrap()
}

fn own() -> CallContext {
    CallContext {
        execution: "execution-1".into(),
        idempotency_key: "root.1".into(),
        attempt: 2,
    }
}

fn payload(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

/// The workflow whose body is `body`.
fn flow(body: &str, limits: WorkflowLimits) -> Box<dyn Guest> {
    load(&guests::with_call(body)).new_workflow("tenant", "flow", &payload("[1,2]"), own(), limits)
}

/// Runs a guest until it does more than pause. Returns how often it paused.
fn run_on(guest: &mut dyn Guest) -> (usize, GuestTurn) {
    for pauses in 0.. {
        match guest.resume_guest(None) {
            GuestTurn::Paused => {}
            turn => return (pauses, turn),
        }
    }
    unreachable!()
}

/// The error that a turn ends with.
fn failed(turn: GuestTurn) -> ExecutionError {
    match turn {
        GuestTurn::Completed(Err(error)) => error,
        other => panic!("it did not fail: {other:?}"),
    }
}
