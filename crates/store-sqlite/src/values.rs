//! Values as SQLite stores them: instants are microseconds, flags are 0 and 1, hashes are bytes.

use std::sync::Arc;

use onward_journal::{Text, Timestamp};
use onward_store::{Column, Error, Row, Stored, Type, Value};
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

/// A value on its way into a statement.
pub(crate) struct Bound<'a>(pub(crate) &'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Bool(flag) => ValueRef::Integer(i64::from(*flag)),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Time(at) => ValueRef::Integer(at.as_micros()),
        }))
    }
}

/// The row of a statement that selects `columns` and then the version.
pub(crate) fn stored(columns: &[Column], row: &rusqlite::Row<'_>) -> Result<Stored, Error> {
    let value = |(place, column)| value(column, row.get_ref(place).map_err(crate::error::from)?);
    let values: Result<Vec<Value>, Error> = columns.iter().enumerate().map(value).collect();
    let version: i64 = row.get(columns.len()).map_err(crate::error::from)?;
    Ok(Stored { row: Row(values?), version: version.cast_unsigned() })
}

fn value(column: &Column, stored: ValueRef<'_>) -> Result<Value, Error> {
    let value = match (column.of, stored) {
        (_, ValueRef::Null) => Some(Value::Null),
        (Type::Int | Type::Serial, ValueRef::Integer(number)) => Some(Value::Int(number)),
        (Type::Bool, ValueRef::Integer(number)) => Some(Value::Bool(number != 0)),
        (Type::Time, ValueRef::Integer(us)) => Timestamp::from_micros(us).map(Value::Time),
        (Type::Text, ValueRef::Text(bytes)) => str::from_utf8(bytes).ok().map(|text| Value::Text(Text::from(text))),
        (Type::Bytes, ValueRef::Blob(bytes)) => Some(Value::Bytes(Arc::from(bytes))),
        _ => None,
    };
    value.ok_or_else(|| Error::corrupt(format_args!("column {} holds a value it cannot hold", column.name)))
}
