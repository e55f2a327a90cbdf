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
mod doctor;
mod edges;
mod editable_store;
mod explain;
mod node;
mod nodes;
mod observed_store;
mod projector;
mod projector_loop;
mod replay;
mod script;
mod script_runtime;
mod slow_steps;
mod task_claims;
mod task_deployment;
mod task_diagnosis;
mod task_fixture;
mod task_handover;
mod task_leases;
mod task_withdrawal;
mod verify;
mod workflow_fixture;
