//! Conversion of a row to a recipient, independent of the file format.

use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde_json::{Map, Value};

use super::BadRow;
use crate::address;

const ID_BYTES_MAX: usize = 255;
const SAMPLE_CHARS_MAX: usize = 120;

/// Builds a recipient, or returns the reason why the row cannot be used. Without an id, the
/// lowercase address is the id.
pub(super) fn build_recipient(
    id: Option<&str>,
    address: &str,
    channel: DeliveryChannel,
    data: Map<String, Value>,
) -> Result<AudienceRecipient, String> {
    let address = address::parse_address(channel, address)?;
    // Uppercase and lowercase forms are the same mailbox: a recipient must not get two mails
    // because of a capital letter.
    let id = id.map_or_else(|| address.to_lowercase(), |id| id.trim().to_owned());
    if id.is_empty() {
        return Err("there is no id".to_owned());
    }
    if id.len() > ID_BYTES_MAX {
        return Err(format!("the id is longer than {ID_BYTES_MAX} bytes"));
    }
    if id.chars().any(char::is_control) {
        return Err("the id has control characters".to_owned());
    }
    Ok(AudienceRecipient { id, address, data })
}

/// Builds a bad row with the beginning of its content.
pub(super) fn bad_row(line: u64, reason: impl Into<String>, row: &[u8]) -> BadRow {
    // A UTF-8 character has at most four bytes.
    let start = &row[..row.len().min(4 * SAMPLE_CHARS_MAX)];
    let text = String::from_utf8_lossy(start);
    let sample = text
        .chars()
        .take(SAMPLE_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    BadRow {
        line,
        reason: reason.into(),
        sample,
    }
}
