//! Values, rows and keys: the untyped contents of table columns.

use std::fmt;
use std::sync::Arc;

use onward_base::{SharedText, Timestamp, hex};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnType {
    /// A 64-bit integer.
    Int,
    /// A boolean, true or false.
    Bool,
    /// Text without U+0000, ordered by its bytes.
    Text,
    /// A byte string of any length.
    Bytes,
    /// An instant with microsecond precision.
    Time,
    /// An integer that the store assigns, larger than any it assigned before in the table. The
    /// caller inserts [`ColumnValue::Null`]. A serial column is the whole key of its table.
    Serial,
}

/// The value of one column in one row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnValue {
    /// No value, as in SQL `NULL`.
    Null,
    /// A value of an [`Int`](ColumnType::Int) or an assigned [`Serial`](ColumnType::Serial) column.
    Int(i64),
    /// A value of a [`Bool`](ColumnType::Bool) column.
    Bool(bool),
    /// A value of a [`Text`](ColumnType::Text) column.
    Text(SharedText),
    /// A value of a [`Bytes`](ColumnType::Bytes) column.
    Bytes(Arc<[u8]>),
    /// A value of a [`Time`](ColumnType::Time) column.
    Time(Timestamp),
}

impl ColumnValue {
    /// Whether a column of this type can hold the value. `Null` fits every type.
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

    /// Returns the approximate storage size in bytes.
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

/// The values of a row's key columns, in the order of the table.
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

/// The values of a row, one per column, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableRow(pub Vec<ColumnValue>);

/// A row as the store holds it, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The values of the row.
    pub row: TableRow,
    /// The version for optimistic locking: 1 after the insert, incremented by each update.
    pub version: u64,
}
