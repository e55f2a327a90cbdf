//! The engine in one process, on real stores with real components: what it survives, where its
//! requests may go, and what its tasks may do to it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod account;
mod faults;
mod http;
mod library;
mod matrix;
mod scenario;
mod world;
