//! What the diagnostics report about executions that run in virtual time, and about damaged stores.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]

mod doctor;
mod explain;
mod replay;
mod verify;
mod worker_tasks;
mod workflow_fixture;

#[path = "../../../engine/tests/fixtures/editable_store.rs"]
#[expect(dead_code, reason = "only the tests of the engine fail commits")]
mod editable_store;
#[path = "../../../engine/tests/fixtures/run_script.rs"]
mod run_script;
#[path = "../../../engine/tests/fixtures/script_runtime.rs"]
mod script_runtime;
#[path = "../../../engine/tests/fixtures/task_fixture.rs"]
#[expect(dead_code, reason = "only the tests of the engine stop nodes")]
mod task_fixture;
