//! Why a campaign file cannot be used.

use thiserror::Error as ThisError;

/// Why a campaign file cannot be used.
#[derive(Debug, ThisError)]
pub enum Error {
    /// It, or a file that it names, cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not what such a file has to be.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Where, from 1.
        line: u64,
        /// Where in the line, from 1.
        column: u64,
        /// What is wrong there.
        message: String,
    },
    /// A stored document is not one of a campaign.
    #[error("the document of the campaign cannot be read: {0}")]
    InvalidDocument(String),
    /// It says something that cannot be meant.
    #[error("{field}: {message}")]
    InvalidField {
        /// Which field of the file.
        field: String,
        /// What is wrong with it.
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
