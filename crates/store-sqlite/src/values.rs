//! Conversion of values to and from SQLite: timestamps are microseconds, booleans are 0 and 1,
//! hashes are bytes.

use std::sync::Arc;

use onward_base::{SharedText, Timestamp};
use onward_store::{ColumnSchema, ColumnType, ColumnValue, Error, StoredRow, TableRow};
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

/// A column value as a statement parameter.
pub(crate) struct SqliteParameter<'a>(pub(crate) &'a ColumnValue);

impl ToSql for SqliteParameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            ColumnValue::Null => ValueRef::Null,
            ColumnValue::Int(number) => ValueRef::Integer(*number),
            ColumnValue::Bool(flag) => ValueRef::Integer(i64::from(*flag)),
            ColumnValue::Text(text) => ValueRef::Text(text.as_bytes()),
            ColumnValue::Bytes(bytes) => ValueRef::Blob(bytes),
            ColumnValue::Time(at) => ValueRef::Integer(at.as_micros()),
        }))
    }
}

/// Decodes the row of a statement that selects `columns` and then the version.
pub(crate) fn stored_from_row(
    columns: &[ColumnSchema],
    row: &rusqlite::Row<'_>,
) -> Result<StoredRow, Error> {
    let value = |(place, column)| {
        decode_value(
            column,
            row.get_ref(place)
                .map_err(crate::error::from_sqlite_error)?,
        )
    };
    let values: Result<Vec<ColumnValue>, Error> = columns.iter().enumerate().map(value).collect();
    let version: i64 = row
        .get(columns.len())
        .map_err(crate::error::from_sqlite_error)?;
    Ok(StoredRow {
        row: TableRow(values?),
        version: version.cast_unsigned(),
    })
}

fn decode_value(column: &ColumnSchema, stored: ValueRef<'_>) -> Result<ColumnValue, Error> {
    let value = match (column.column_type, stored) {
        (_, ValueRef::Null) => Some(ColumnValue::Null),
        (ColumnType::Int | ColumnType::Serial, ValueRef::Integer(number)) => {
            Some(ColumnValue::Int(number))
        }
        (ColumnType::Bool, ValueRef::Integer(number)) => Some(ColumnValue::Bool(number != 0)),
        (ColumnType::Time, ValueRef::Integer(us)) => {
            Timestamp::from_micros(us).map(ColumnValue::Time)
        }
        (ColumnType::Text, ValueRef::Text(bytes)) => str::from_utf8(bytes)
            .ok()
            .map(|text| ColumnValue::Text(SharedText::from(text))),
        (ColumnType::Bytes, ValueRef::Blob(bytes)) => Some(ColumnValue::Bytes(Arc::from(bytes))),
        _ => None,
    };
    value.ok_or_else(|| {
        Error::corrupt(format_args!(
            "column {} holds an invalid value",
            column.name
        ))
    })
}
