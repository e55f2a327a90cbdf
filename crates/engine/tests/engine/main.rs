//! The engine, driven in virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]

mod abandoned_attempts;
mod ahead;
mod core_harness;
mod cross_node;
mod edges;
mod hostile_executions;
mod node;
mod nodes;
mod observed_store;
mod projector;
mod projector_loop;
mod signal_limits;
mod slow_steps;
mod task_claims;
mod task_deployment;
mod task_handover;
mod task_leases;
mod task_withdrawal;
mod waiting_clients;

#[path = "../fixtures/editable_store.rs"]
#[expect(dead_code, reason = "only the tests of the diagnostics damage logs")]
mod editable_store;
#[path = "../fixtures/run_script.rs"]
mod run_script;
#[path = "../fixtures/script_runtime.rs"]
mod script_runtime;
#[path = "../fixtures/task_fixture.rs"]
mod task_fixture;
