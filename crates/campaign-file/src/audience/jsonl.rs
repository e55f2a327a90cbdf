//! Reader for audiences in JSON Lines: one JSON object per line.

use std::fmt;
use std::io::Read;

use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::bounded_lines::{BoundedLines, LineStatus};
use super::recipient_row::{self, RecipientRowError};
use super::{AudienceFields, AudienceRowError, ROW_BYTES_MAX};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The recipients of a JSON Lines file.
pub(super) struct JsonlAudience<R> {
    lines: BoundedLines<R>,
    line_number: u64,
    fields: AudienceFields,
    channel: DeliveryChannel,
    has_ended: bool,
}

impl<R: Read> JsonlAudience<R> {
    pub(super) fn new(reader: R, fields: AudienceFields, channel: DeliveryChannel) -> Self {
        Self {
            lines: BoundedLines::new(reader, ROW_BYTES_MAX),
            line_number: 0,
            fields,
            channel,
            has_ended: false,
        }
    }

    /// The line that was read last.
    pub(super) const fn line(&self) -> u64 {
        self.line_number
    }

    pub(super) fn next_recipient(&mut self) -> Option<Result<AudienceRecipient, AudienceRowError>> {
        while !self.has_ended {
            match self.lines.read_line() {
                Ok(None) => self.has_ended = true,
                Ok(Some(line)) => {
                    self.line_number += 1;
                    if let Some(recipient) = self.parse_line(&line) {
                        return Some(recipient);
                    }
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(AudienceRowError::ReadFailed(error)));
                }
            }
        }
        None
    }

    /// Parses the line that was read last. Returns `None` if it is empty.
    fn parse_line(&self, line: &LineStatus) -> Option<Result<AudienceRecipient, AudienceRowError>> {
        let text = self.lines.line_bytes();
        let text = if self.line_number == 1 {
            text.strip_prefix(BOM).unwrap_or(text)
        } else {
            text
        };
        if text.trim_ascii().is_empty() {
            return None;
        }
        let recipient = match line {
            LineStatus::Complete => parse_recipient(text, &self.fields, self.channel),
            LineStatus::TooLong => Err(RecipientRowError::LineTooLong),
        };
        Some(
            recipient
                .map_err(|error| recipient_row::invalid_row(self.line_number, &error, text).into()),
        )
    }
}

fn parse_recipient(
    text: &[u8],
    fields: &AudienceFields,
    channel: DeliveryChannel,
) -> Result<AudienceRecipient, RecipientRowError> {
    let UniqueKeyObject(mut data) =
        serde_json::from_slice(text).map_err(RecipientRowError::InvalidJson)?;
    let address = data
        .remove(&fields.address)
        .ok_or_else(|| RecipientRowError::MissingField(fields.address.clone()))?;
    let address = text_or_integer(&fields.address, address)?;
    let id = match &fields.id {
        // The id and the address can be the same field.
        Some(id) if *id == fields.address => None,
        Some(id) => Some(
            data.remove(id)
                .ok_or_else(|| RecipientRowError::MissingField(id.clone()))?,
        ),
        None => data.remove("id"),
    };
    let id = id
        .map(|id| text_or_integer(fields.id.as_deref().unwrap_or("id"), id))
        .transpose()?;
    recipient_row::build_recipient(id.as_deref(), &address, channel, data)
}

/// Returns a string, or an integer as a string. Fails for any other value.
fn text_or_integer(field: &str, value: Value) -> Result<String, RecipientRowError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        _ => Err(RecipientRowError::NotTextOrInteger(field.to_owned())),
    }
}

/// A JSON object without duplicate keys: with two addresses the intended one would be unknown.
struct UniqueKeyObject(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueKeyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeyObjectVisitor)
    }
}

struct UniqueKeyObjectVisitor;

impl<'de> Visitor<'de> for UniqueKeyObjectVisitor {
    type Value = UniqueKeyObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueKeyObject, A::Error> {
        let mut data = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if data.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate key `{name}`")));
            }
            data.insert(name, value);
        }
        Ok(UniqueKeyObject(data))
    }
}
