//! The execution journal: an append-only list of events that is the only truth about an execution.
//!
//! This crate is pure. It knows no clock, no disk, no network and no WASM: it is handed events or commands and says what
//! may be appended, what the journal then amounts to, and which rule forbids the rest. Everything else in Onward rests on
//! that judgement, so it stands alone, small enough to be read in one sitting and to be checked against a model
//! (`spec/journal.qnt`).
//!
//! - [`Event`]: the 20 events. [`PromiseId`], [`ExecutionId`], [`JoinSetId`]: who they are about.
//! - [`transition`]: the life of an execution as one table. [`INVARIANTS`]: every rule as data.
//! - [`Fold`]: what events amount to, kept up to date one by one, each at the same cost.
//! - [`Journal`]: events and their fold. [`Journal::handle`] turns a [`Command`] into events;
//!   [`Journal::recover`] rebuilds from a recorded list and trusts nothing in it.
//! - [`Replay`]: what a guest that runs again is answered from.
//! - [`codec`]: the form in storage. [`jsonl`]: the form for people and other programs.
//!
//! ```
//! use onward_journal::{Command, ComponentDigest, ExecutionId, Journal, Payload, State, Timestamp};
//!
//! let component_digest = ComponentDigest::of(b"component bytes");
//! let id = ExecutionId::derive(&component_digest, None, "order-42");
//! let mut journal = Journal::new(id);
//! let start = Command::Start { component_digest, input: Payload::null(), parent: None, key: Some("order-42".into()) };
//! journal.handle(start, Timestamp::EPOCH)?;
//! assert_eq!(journal.state(), Some(State::Running));
//!
//! let early = journal.handle(Command::Resume, Timestamp::EPOCH).unwrap_err();
//! assert_eq!(early.rule.id(), "G-4");
//! # Ok::<(), onward_journal::Violation>(())
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
mod replay;
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
pub use replay::{AwaitEnd, RecordedAwait, RecordedJoinResult, RecordedOutcome, ReplayIndex};
pub use retry::{BackoffFactor, RetryJitter, RetryPolicy};
pub use state::{ExecutionPhase, ExecutionState, LifecycleAction, phase_transition};
pub use violation::RuleViolation;
