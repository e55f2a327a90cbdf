//! The format for people and other programs: one JSON object per line. It is public and stable
//! (`spec/journal.md`).
//!
//! ```
//! use onward_journal::jsonl::{JournalLine, JournalLineReader};
//! let text = r#"{"sequence":0,"timestamp":"2026-03-01T12:00:00Z","event":"TimerFired","promise_id":"root.1"}"#;
//! let mut reader = JournalLineReader::new();
//! let event = reader.read_line(text)?;
//! assert_eq!(JournalLine::new(&event, reader.execution_id()).to_string(), text);
//! # Ok::<(), onward_journal::jsonl::JournalLineError>(())
//! ```

mod field;
mod read;
mod retry_policy;
mod write;

use thiserror::Error;

pub use read::JournalLineReader;
pub use write::JournalLine;

/// The error for a line that could not be read: what is wrong and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct JournalLineError(String);
