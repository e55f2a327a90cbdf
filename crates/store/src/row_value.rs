//! Values, rows and keys: what the columns of a table hold, without saying what they mean.

use std::fmt;
use std::sync::Arc;

use onward_base::{SharedText, Timestamp, hex};

/// What a column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnType {
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
pub enum ColumnValue {
    /// Nothing.
    Null,
    /// An integer.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(SharedText),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// An instant.
    Time(Timestamp),
}

impl ColumnValue {
    /// Whether a column of this type can hold the value; nothing is of every type.
    pub const fn fits_type(&self, wanted: ColumnType) -> bool {
        matches!(
            (self, wanted),
            (Self::Null, _)
                | (Self::Int(_), ColumnType::Int | ColumnType::Serial)
                | (Self::Bool(_), ColumnType::Bool)
                | (Self::Text(_), ColumnType::Text)
                | (Self::Bytes(_), ColumnType::Bytes)
                | (Self::Time(_), ColumnType::Time)
        )
    }

    /// Roughly what it takes in storage.
    pub fn size_in_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) | Self::Bool(_) | Self::Time(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl fmt::Display for ColumnValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Text(text) => write!(f, "{text}"),
            Self::Bytes(bytes) => hex::write_hex(f, bytes),
            Self::Time(at) => write!(f, "{at}"),
        }
    }
}

/// The values of a row's key columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(pub Vec<ColumnValue>);

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if place == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

/// The values of a row, one a column, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableRow(pub Vec<ColumnValue>);

/// A row as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The values.
    pub row: TableRow,
    /// 1 when inserted, one more with each update.
    pub version: u64,
}
