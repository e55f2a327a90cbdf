//! The form for people and other programs: one JSON object a line. It is public and stable (`spec/journal.md`).
//!
//! ```
//! use onward_journal::jsonl::{Reader, Line};
//! let text = r#"{"sequence":0,"timestamp":"2026-03-01T12:00:00Z","event":"TimerFired","promise_id":"root.1"}"#;
//! let mut reader = Reader::new();
//! let event = reader.read(text)?;
//! assert_eq!(Line::new(&event, reader.execution()).to_string(), text);
//! # Ok::<(), onward_journal::jsonl::LineError>(())
//! ```

mod field;
mod read;
mod retry_policy;
mod write;

use thiserror::Error;

pub use read::JournalLineReader;
pub use write::JournalLine;

/// Why a line could not be read: what is wrong and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct JournalLineError(String);
