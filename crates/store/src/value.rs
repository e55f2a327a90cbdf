//! Values, rows and keys: what the columns of a table hold, without saying what they mean.

use std::fmt;
use std::sync::Arc;

use onward_journal::{Text, Timestamp, hex};

/// What a column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// A 64-bit integer.
    Int,
    /// True or false.
    Bool,
    /// Text without U+0000, ordered by its bytes.
    Text,
    /// Bytes.
    Bytes,
    /// An instant in microseconds.
    Time,
    /// An integer that the store assigns, larger than any it assigned before in the table. It is given as
    /// [`Value::Null`] and is the whole key of its table.
    Serial,
}

/// What one column of one row holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Nothing.
    Null,
    /// An integer.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(Text),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// An instant.
    Time(Timestamp),
}

impl Value {
    /// Whether a column of this type can hold the value; nothing is of every type.
    pub const fn is_a(&self, wanted: Type) -> bool {
        matches!(
            (self, wanted),
            (Self::Null, _)
                | (Self::Int(_), Type::Int | Type::Serial)
                | (Self::Bool(_), Type::Bool)
                | (Self::Text(_), Type::Text)
                | (Self::Bytes(_), Type::Bytes)
                | (Self::Time(_), Type::Time)
        )
    }

    /// Roughly what it takes in storage.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) | Self::Bool(_) | Self::Time(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Text(text) => write!(f, "{text}"),
            Self::Bytes(bytes) => hex::write(f, bytes),
            Self::Time(at) => write!(f, "{at}"),
        }
    }
}

/// The values of a row's key columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<Value>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if place == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

/// The values of a row, one a column, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub Vec<Value>);

/// A row as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The values.
    pub row: Row,
    /// 1 when inserted, one more with each update.
    pub version: u64,
}
