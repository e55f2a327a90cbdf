//! The execution journal: an append-only list of events that is the only source of truth about an
//! execution.
//!
//! This crate is pure: it uses no clock, no disk, no network and no WASM. The caller passes in
//! events or commands; the crate decides what may be appended, computes the resulting state, and
//! names the rule that forbids the rest. Everything else in Onward depends on these decisions, so
//! the crate stands alone, small enough to be read in one sitting and to be checked against a model
//! (`spec/journal.qnt`).
//!
//! - [`Event`]: the 20 events. [`PromiseId`], [`ExecutionId`], [`JoinSetId`]: the ids of what they
//!   describe.
//! - [`phase_transition`]: the lifecycle of an execution as one table. [`INVARIANTS`]: every rule
//!   as data.
//! - [`JournalState`]: the state that the events reduce to, updated event by event at a constant
//!   cost per event.
//! - [`Journal`]: events and their state. [`Journal::handle_command`] turns a [`JournalCommand`]
//!   into events; [`Journal::recover`] rebuilds a journal from recorded events and checks every one
//!   of them again.
//! - [`codec`]: the storage format. [`jsonl`]: the format for people and other programs.
//!
//! ```
//! use onward_base::{Payload, Timestamp};
//! use onward_journal::{ComponentDigest, ExecutionId, ExecutionState, Journal, JournalCommand};
//!
//! let component_digest = ComponentDigest::from_component(b"component bytes");
//! let id = ExecutionId::derive(&component_digest, None, "order-42");
//! let mut journal = Journal::new(id);
//! let start = JournalCommand::Start {
//!     component_digest,
//!     input: Payload::null(),
//!     parent: None,
//!     key: Some("order-42".into()),
//! };
//! journal.handle_command(start, Timestamp::EPOCH)?;
//! assert_eq!(journal.execution_state(), Some(ExecutionState::Running));
//!
//! let early = journal.handle_command(JournalCommand::Resume, Timestamp::EPOCH).unwrap_err();
//! assert_eq!(early.rule.id(), "G-4");
//! # Ok::<(), onward_journal::RuleViolation>(())
//! ```

pub mod codec;
mod command;
mod delivery;
mod describe;
mod digest;
mod event;
mod failure;
mod id;
mod invariant;
mod journal;
mod journal_state;
pub mod jsonl;
mod performer;
mod retry;
pub mod rules;
mod state;
mod violation;

pub use command::JournalCommand;
pub use delivery::DeliveryGuarantee;
pub use digest::{ComponentDigest, DigestError};
pub use event::{
    AwaitKind, Event, EventCategory, EventKind, InvokeKind, InvokeResult, JournalEvent,
};
pub use failure::{ErrorKind, ErrorKindName, ExecutionError};
pub use id::{CALL_DEPTH_MAX, ExecutionId, JoinSetId, JournalIdError, PromiseId};
pub use invariant::{INVARIANTS, Invariant, InvariantCheck, Rule, RuleEnforcement};
pub use journal::Journal;
pub use journal_state::{
    AwaitState, InvokePhase, InvokeState, JoinSetState, JournalState, PromiseState, SignalInbox,
};
pub use performer::InvokePerformer;
pub use retry::{RetryJitter, RetryPolicy};
pub use state::{ExecutionPhase, ExecutionState, LifecycleAction, phase_transition};
pub use violation::RuleViolation;
