//! One execution: what its guest asks, answered from the journal or recorded in it.
//!
//! This crate is pure, like the journal it stands on: it knows no clock, no disk and no WASM. A [`Guest`] is a coroutine that
//! asks; an [`Execution`] answers. Whoever runs the two stores what was recorded before anybody sees its effects, and tells
//! the execution what happens outside: attempts that end, time that passes, signals, cancellation.

mod ask;
mod divergence;
mod execution;
mod index;
mod outside;
mod protocol;
mod repeat;
mod script;
mod seen;
mod weight;

pub use divergence::Divergence;
pub use execution::{Ending, Execution, Limits, Progress, Start, Successor, World};
pub use index::InFlight;
pub use protocol::{Answer, Guest, Level, Request, Taken, Turn, WaitFor};
pub use script::{Host, Script};
