//! The append authority: where everything that happened is kept, and who decides in which order.
//!
//! - [`Store`]: what the engine needs. One atomic [`commit`](Store::commit) carries everything that must become true
//!   together: journal events, rows, run events, positions of readers. It is guarded by what the caller believes, and
//!   stores nothing when a guard does not hold.
//! - [`RunStateStore`]: the contract for run events, for producers and readers that need nothing else.
//! - [`decide()`]: the rules of a commit, written once. An adapter reads what [`Before`] asks for, calls it, and writes the
//!   [`Plan`] it gets, all in one transaction of its database.
//! - [`memory`]: the simplest store that can be right; the others are compared with it.
//! - `conformance` (a feature): the suite that every adapter has to pass, ours and yours.

mod admit;
mod clock;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decide;
mod error;
mod field;
mod ids;
pub mod lease;
pub mod measure;
pub mod memory;
pub mod migration;
mod policy;
mod read;
mod run_state;
mod store;
mod table;
pub mod tables;
mod value;

pub use admit::Admitted;
pub use clock::{Clock, ManualClock, SystemClock};
pub use commit::{Appended, Change, Commit, Fence, JournalAppend, Move, Outcome, Purge, Receipt};
pub use decide::{Before, Care, Changed, Known, Plan, Planned, Write, decide};
pub use error::{Conflict, Error, Invalid, Kind};
pub use ids::{Epoch, Reader, Serial, Shard};
pub use policy::{KeyCheck, Limits, Policy};
pub use read::{JournalChunk, Page, RunHead, Scan};
pub use run_state::RunStateStore;
pub use store::{Heard, Presence, Records, Store};
pub use table::{Column, Field, Index, Record, Table};
pub use value::{Key, Row, Stored, Type, Value};
