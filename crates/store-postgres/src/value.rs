//! Values on their way into the database and out of it, in its binary form.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::BytesMut;
use onward_journal::{Text, Timestamp};
use onward_store::{Error, Stored, Table, Type, Value};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type as SqlType, accepts, to_sql_checked};

use crate::error;

type Boxed = Box<dyn StdError + Sync + Send>;

/// Microseconds between our epoch and that of Postgres, which is 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// An instant, in the whole range that can be written. What stands for no instant of ours, such as `infinity`, is an
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl ToSql for Time {
    fn to_sql(&self, of: &SqlType, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        (self.0.as_micros() - EPOCH_MICROS).to_sql(of, out)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Time {
    fn from_sql(of: &SqlType, raw: &'a [u8]) -> Result<Self, Boxed> {
        let at = i64::from_sql(of, raw)?.checked_add(EPOCH_MICROS).and_then(Timestamp::from_micros);
        at.map(Self).ok_or_else(|| "an instant outside of the years 0 to 9999".into())
    }

    accepts!(TIMESTAMPTZ);
}

/// Sixteen bytes that are a UUID in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uuid(pub(crate) [u8; 16]);

impl ToSql for Uuid {
    fn to_sql(&self, _: &SqlType, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &SqlType, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

/// A value of a described table as a parameter. That it is of the column's type was checked before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a>(pub(crate) &'a Value);

impl ToSql for Cell<'_> {
    fn to_sql(&self, of: &SqlType, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => number.to_sql(of, out),
            Value::Bool(flag) => flag.to_sql(of, out),
            Value::Text(text) => (&**text).to_sql(of, out),
            Value::Bytes(bytes) => (&**bytes).to_sql(of, out),
            Value::Time(at) => Time(*at).to_sql(of, out),
        }
    }

    accepts!(INT8, BOOL, TEXT, BYTEA, TIMESTAMPTZ);
    to_sql_checked!();
}

/// A value as a list of one table's parameters.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// The type of a column in SQL.
pub(crate) const fn sql_type(of: Type) -> &'static str {
    match of {
        Type::Int | Type::Serial => "bigint",
        Type::Bool => "boolean",
        Type::Text => "text",
        Type::Bytes => "bytea",
        Type::Time => "timestamptz",
    }
}

/// The row of a described table whose columns, and then the version, `row` has.
pub(crate) fn stored(table: &Table, row: &Row) -> Result<Stored, Error> {
    let values = table.columns.iter().enumerate().map(|(place, column)| value(row, place, column.of));
    let values = values.collect::<Result<_, _>>().map_err(|cause| error::unreadable(table.name, &cause))?;
    let version: i64 = row.try_get(table.columns.len()).map_err(|cause| error::unreadable(table.name, &cause))?;
    Ok(Stored { row: onward_store::Row(values), version: unsigned(version)? })
}

fn value(row: &Row, place: usize, of: Type) -> Result<Value, tokio_postgres::Error> {
    let value = match of {
        Type::Int | Type::Serial => row.try_get::<_, Option<i64>>(place)?.map(Value::Int),
        Type::Bool => row.try_get::<_, Option<bool>>(place)?.map(Value::Bool),
        Type::Text => row.try_get::<_, Option<&str>>(place)?.map(|text| Value::Text(Text::from(text))),
        Type::Bytes => row.try_get::<_, Option<&[u8]>>(place)?.map(|bytes| Value::Bytes(Arc::from(bytes))),
        Type::Time => row.try_get::<_, Option<Time>>(place)?.map(|at| Value::Time(at.0)),
    };
    Ok(value.unwrap_or(Value::Null))
}

/// A count as SQL has it.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count as SQL had it.
pub(crate) fn unsigned(count: i64) -> Result<u64, Error> {
    u64::try_from(count).map_err(|_| Error::Corrupt(format!("a count of {count}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_round_trips() {
        for at in [Timestamp::MIN, Timestamp::EPOCH, Timestamp::EPOCH.plus_ms(1), Timestamp::MAX] {
            let mut raw = BytesMut::new();
            Time(at).to_sql(&SqlType::TIMESTAMPTZ, &mut raw).unwrap();
            assert_eq!(Time::from_sql(&SqlType::TIMESTAMPTZ, &raw).unwrap(), Time(at));
        }
    }

    #[test]
    fn infinity_is_no_instant() {
        for infinity in [i64::MIN, i64::MAX] {
            assert!(Time::from_sql(&SqlType::TIMESTAMPTZ, &infinity.to_be_bytes()).is_err());
        }
    }

    #[test]
    fn counts_beyond_sql_are_as_large_as_it_gets() {
        assert_eq!(signed(u64::MAX), i64::MAX);
        assert_eq!(signed(7), 7);
        assert!(unsigned(-1).is_err());
    }
}
