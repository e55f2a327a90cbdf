//! One execution: answers the requests of its guest from the journal, or records them in it.
//!
//! This crate is pure, like the journal crate that it builds on: it uses no clock, no disk and no
//! WASM. A [`Guest`] is a coroutine that makes requests; an [`Execution`] answers them. The caller
//! that runs the two (the shard owner) must store the recorded events before their effects become
//! visible, and passes in external events: attempts that end, time that passes, signals and
//! cancellation.

mod divergence;
mod execution;
mod external_events;
mod guest_function;
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
pub use guest_function::{GuestFunction, GuestFunctionKind};
pub use journal_index::{AttemptInFlight, SignalBacklog};
pub use protocol::{
    AwaitMode, Guest, GuestLogLevel, GuestRequest, GuestResponse, GuestTurn, JoinSetNext,
};
pub use script::{ScriptHost, ScriptedGuest};
