//! Executions of scripts: what is recorded, what a replay is answered, and what a crash changes:
//! nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod cancel;
mod crash;
mod diverge;
mod engine;
mod misuse;
mod signals;
mod worked;
