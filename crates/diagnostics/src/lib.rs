//! Read-only answers about a store: why an execution waits, what is stuck or damaged, and whether a
//! build repeats a journal.
//!
//! The crate reads what the engine has written and changes nothing. It returns documents of
//! the API; the engine below it does not depend on them.
//!
//! - [`waits`]: the pending waits of an execution, derived from its journal.
//! - [`explain`]: what an execution waits for, and what happens next.
//! - [`doctor`]: reports stuck work and inconsistent rows.
//! - [`replay`]: checks that code repeats what a journal records.
//! - [`verify`]: checks the stored run logs and reports states that cannot have happened.

pub mod doctor;
pub mod explain;
pub mod replay;
pub mod verify;
pub mod waits;
