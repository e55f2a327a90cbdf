//! One execution: what its guest asks, answered from the journal or recorded in it.
//!
//! This crate is pure, like the journal it stands on: it knows no clock, no disk and no WASM. A [`Guest`] is a coroutine that
//! asks; an [`Execution`] answers. Whoever runs the two stores what was recorded before anybody sees its effects, and tells
//! the execution what happens outside: attempts that end, time that passes, signals, cancellation.

mod guest_request;
mod divergence;
mod execution;
mod journal_index;
mod external_events;
mod protocol;
mod replay_match;
mod script;
mod guest_operations;
mod payload_size;

pub use divergence::ReplayDivergence;
pub use execution::{ExecutionOutcome, Execution, ExecutionLimits, ExecutionProgress, ExecutionStart, SuccessorExecution, ExecutionEnvironment};
pub use journal_index::AttemptInFlight;
pub use protocol::{GuestResponse, Guest, GuestLogLevel, GuestRequest, JoinSetNext, GuestTurn, AwaitMode};
pub use script::{ScriptHost, ScriptedGuest};
