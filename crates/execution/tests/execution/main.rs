//! Executions of scripts: what is recorded, what a replay is answered, and what a crash changes:
//! nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]

mod cancel;
mod crash;
mod diverge;
mod engine;
mod misuse;
mod signals;
mod worked;
