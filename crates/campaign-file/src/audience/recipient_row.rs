//! Conversion of a row to a recipient, independent of the file format.

use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{InvalidRow, ROW_BYTES_MAX};
use crate::address::{self, AddressError};

const ID_BYTES_MAX: usize = 255;
const SAMPLE_CHARS_MAX: usize = 120;

/// Reasons why a row of an audience is invalid.
#[derive(Debug, Error)]
pub(super) enum RecipientRowError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("the id is empty")]
    EmptyId,
    #[error("the id is longer than {ID_BYTES_MAX} bytes")]
    IdTooLong,
    #[error("the id has control characters")]
    IdControlCharacters,
    #[error("the row has {fields} fields, and the header has {columns} columns")]
    FieldCount { fields: usize, columns: usize },
    #[error("`{0}` is not UTF-8")]
    NotUtf8(String),
    #[error("the line is longer than {ROW_BYTES_MAX} bytes")]
    LineTooLong,
    /// Each line is parsed on its own, so the parser always reports line 1, and only the column is
    /// useful.
    #[error("invalid JSON object: {}", describe_json_error(.0))]
    InvalidJson(serde_json::Error),
    #[error("field `{0}` is missing")]
    MissingField(String),
    #[error("field `{0}` must be a text or a whole number")]
    NotTextOrInteger(String),
}

/// Describes a JSON error without the line.
fn describe_json_error(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    match text.strip_suffix(&format!(" at line {} column {column}", error.line())) {
        Some(message) if column > 0 => format!("{message}, column {column}"),
        message => message.unwrap_or(&text).to_owned(),
    }
}

/// Builds a recipient, or returns the reason why the row cannot be used. Without an id, the
/// lowercase address is the id.
pub(super) fn build_recipient(
    id: Option<&str>,
    address: &str,
    channel: DeliveryChannel,
    data: Map<String, Value>,
) -> Result<AudienceRecipient, RecipientRowError> {
    let address = address::parse_address(channel, address)?;
    // Uppercase and lowercase forms are the same mailbox: a recipient must not get two mails
    // because of a capital letter.
    let id = id.map_or_else(|| address.to_lowercase(), |id| id.trim().to_owned());
    if id.is_empty() {
        return Err(RecipientRowError::EmptyId);
    }
    if id.len() > ID_BYTES_MAX {
        return Err(RecipientRowError::IdTooLong);
    }
    if id.chars().any(char::is_control) {
        return Err(RecipientRowError::IdControlCharacters);
    }
    Ok(AudienceRecipient { id, address, data })
}

/// Builds an invalid row with the start of its content.
pub(super) fn invalid_row(line: u64, error: &RecipientRowError, row: &[u8]) -> InvalidRow {
    // A UTF-8 character has at most four bytes.
    let start = &row[..row.len().min(4 * SAMPLE_CHARS_MAX)];
    let text = String::from_utf8_lossy(start);
    let sample = text
        .chars()
        .take(SAMPLE_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    InvalidRow {
        line,
        reason: error.to_string(),
        sample,
    }
}
