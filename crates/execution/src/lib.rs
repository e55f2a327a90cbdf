//! One execution: what its guest asks, answered from the journal or recorded in it.
//!
//! This crate is pure, like the journal it stands on: it knows no clock, no disk and no WASM. A [`Guest`] is a coroutine that
//! asks; an [`Execution`] answers. Whoever runs the two stores what was recorded before anybody sees its effects, and tells
//! the execution what happens outside: attempts that end, time that passes, signals, cancellation.

mod divergence;
mod execution;
mod external_events;
mod guest_operations;
mod guest_request;
mod journal_index;
mod payload_size;
mod protocol;
mod replay_match;
mod script;

pub use divergence::ReplayDivergence;
pub use execution::{
    Execution, ExecutionEnvironment, ExecutionLimits, ExecutionOutcome, ExecutionProgress,
    ExecutionStart, SuccessorExecution,
};
pub use journal_index::AttemptInFlight;
pub use protocol::{
    AwaitMode, Guest, GuestLogLevel, GuestRequest, GuestResponse, GuestTurn, JoinSetNext,
};
pub use script::{ScriptHost, ScriptedGuest};
