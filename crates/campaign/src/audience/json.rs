//! An audience of JSON objects, one on each line.

use std::fmt;
use std::io::Read;

use onward_dispatch::Channel;
use onward_dispatcher::Recipient;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::lines::{Line, Lines};
use super::{Fields, ROW_BYTES_MAX, Trouble, row};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The objects of a file.
pub(super) struct Objects<R> {
    lines: Lines<R>,
    number: u64,
    fields: Fields,
    channel: Channel,
    has_ended: bool,
}

impl<R: Read> Objects<R> {
    pub(super) fn new(reader: R, fields: Fields, channel: Channel) -> Self {
        Self { lines: Lines::new(reader, ROW_BYTES_MAX), number: 0, fields, channel, has_ended: false }
    }

    pub(super) fn next(&mut self) -> Option<Result<Recipient, Trouble>> {
        while !self.has_ended {
            match self.lines.advance() {
                Ok(None) => self.has_ended = true,
                Ok(Some(line)) => {
                    self.number += 1;
                    if let Some(found) = self.row(&line) {
                        return Some(found);
                    }
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(Trouble::End(error)));
                }
            }
        }
        None
    }

    /// What is in the line that was read, unless it is empty.
    fn row(&self, line: &Line) -> Option<Result<Recipient, Trouble>> {
        let text = self.lines.text();
        let text = if self.number == 1 { text.strip_prefix(BOM).unwrap_or(text) } else { text };
        if text.trim_ascii().is_empty() {
            return None;
        }
        let found = match line {
            Line::Whole => recipient(text, &self.fields, self.channel),
            Line::TooLong => Err(format!("the line is longer than {ROW_BYTES_MAX} bytes")),
        };
        Some(found.map_err(|reason| row::bad(self.number, reason, text).into()))
    }
}

fn recipient(text: &[u8], fields: &Fields, channel: Channel) -> Result<Recipient, String> {
    let Object(mut data) = serde_json::from_slice(text).map_err(|error| refused(&error))?;
    let address = data.remove(&fields.address).ok_or_else(|| format!("there is no `{}`", fields.address))?;
    let address = word(&fields.address, address)?;
    let id = match &fields.id {
        // One field can say both.
        Some(id) if *id == fields.address => None,
        Some(id) => Some(data.remove(id).ok_or_else(|| format!("there is no `{id}`"))?),
        None => data.remove("id"),
    };
    let id = id.map(|id| word(fields.id.as_deref().unwrap_or("id"), id)).transpose()?;
    row::recipient(id.as_deref(), &address, channel, data)
}

/// Why a line is no object. It is always the first line of itself, so only the column is worth saying.
fn refused(error: &serde_json::Error) -> String {
    let (said, column) = (error.to_string(), error.column());
    match said.strip_suffix(&format!(" at line {} column {column}", error.line())) {
        Some(what) if column > 0 => format!("this is no JSON object: {what}, column {column}"),
        what => format!("this is no JSON object: {}", what.unwrap_or(&said)),
    }
}

/// A text, or a number that is meant as one.
fn word(field: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        _ => Err(format!("`{field}` has to be a text or a whole number")),
    }
}

/// An object that says everything once: of two addresses nobody knows which is meant.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut data = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if data.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is said twice")));
            }
            data.insert(name, value);
        }
        Ok(Object(data))
    }
}
