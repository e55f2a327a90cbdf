//! The engine, driven in virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod ahead;
mod alone;
mod code;
mod doctor;
mod edges;
mod explain;
mod foreign;
mod given_up;
mod handed;
mod late;
mod loops;
mod node;
mod nodes;
mod place;
mod projector;
mod replay;
mod script;
mod task_claims;
mod task_deployment;
mod task_diagnosis;
mod task_fixture;
mod task_leases;
mod task_withdrawal;
mod told;
mod verify;
mod watched;
