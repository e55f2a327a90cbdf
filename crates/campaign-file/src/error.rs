//! The error type of this crate: reasons why a campaign file or a stored campaign document is
//! rejected.

use thiserror::Error as ThisError;

/// Reasons why a campaign file or a stored campaign document cannot be used.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The campaign file, or a file that it references, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file that cannot be read, as the caller or the campaign file gives it.
        path: String,
        /// The I/O error that reading the file returned.
        source: std::io::Error,
    },
    /// The campaign file is not valid YAML, or does not have the structure of a campaign file.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line of the error, counted from 1.
        line: u64,
        /// Column of the error in its line, counted from 1.
        column: u64,
        /// What is wrong at this position.
        message: String,
    },
    /// A stored document is not the document of a campaign.
    #[error("invalid campaign document: {0}")]
    InvalidDocument(serde_json::Error),
    /// A field of the campaign has an invalid value.
    #[error("{field}: {message}")]
    InvalidField {
        /// Path of the field in the campaign file, such as `audience.format`.
        field: String,
        /// What is wrong with the value of the field.
        message: String,
    },
}

impl Error {
    pub(crate) fn invalid_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidField {
            field: field.into(),
            message: message.into(),
        }
    }
}
