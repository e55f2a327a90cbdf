//! Conversion of values to and from the binary format of Postgres.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::BytesMut;
use onward_base::{SharedText, Timestamp};
use onward_store::{ColumnType, ColumnValue, Error, StoredRow, TableSchema};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type as SqlType, accepts, to_sql_checked};

use crate::error;

type BoxedError = Box<dyn StdError + Sync + Send>;

/// Microseconds between the Unix epoch and that of Postgres, which is 2000-01-01.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A timestamp in the whole range that can be represented. A Postgres value outside of it, such as
/// `infinity`, is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostgresTimestamp(pub(crate) Timestamp);

impl ToSql for PostgresTimestamp {
    fn to_sql(&self, of: &SqlType, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        (self.0.as_micros() - POSTGRES_EPOCH_MICROS).to_sql(of, out)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PostgresTimestamp {
    fn from_sql(of: &SqlType, raw: &'a [u8]) -> Result<Self, BoxedError> {
        let at = i64::from_sql(of, raw)?
            .checked_add(POSTGRES_EPOCH_MICROS)
            .and_then(Timestamp::from_micros);
        at.map(Self)
            .ok_or_else(|| "a timestamp outside the years 0 to 9999".into())
    }

    accepts!(TIMESTAMPTZ);
}

/// Sixteen bytes that are a UUID in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostgresUuid(pub(crate) [u8; 16]);

impl ToSql for PostgresUuid {
    fn to_sql(&self, _: &SqlType, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PostgresUuid {
    fn from_sql(_: &SqlType, raw: &'a [u8]) -> Result<Self, BoxedError> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

/// A value of a table row as a parameter. The caller has already checked that it has the column's
/// type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostgresParameter<'a>(pub(crate) &'a ColumnValue);

impl ToSql for PostgresParameter<'_> {
    fn to_sql(&self, of: &SqlType, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        match self.0 {
            ColumnValue::Null => Ok(IsNull::Yes),
            ColumnValue::Int(number) => number.to_sql(of, out),
            ColumnValue::Bool(flag) => flag.to_sql(of, out),
            ColumnValue::Text(text) => (&**text).to_sql(of, out),
            ColumnValue::Bytes(bytes) => (&**bytes).to_sql(of, out),
            ColumnValue::Time(at) => PostgresTimestamp(*at).to_sql(of, out),
        }
    }

    accepts!(INT8, BOOL, TEXT, BYTEA, TIMESTAMPTZ);
    to_sql_checked!();
}

/// Reference to any value that can be a statement parameter.
pub(crate) type SqlParam<'a> = &'a (dyn ToSql + Sync);

/// Returns the SQL name of a column type.
pub(crate) const fn sql_type_name(of: ColumnType) -> &'static str {
    match of {
        ColumnType::Int | ColumnType::Serial => "bigint",
        ColumnType::Bool => "boolean",
        ColumnType::Text => "text",
        ColumnType::Bytes => "bytea",
        ColumnType::Time => "timestamptz",
    }
}

/// Decodes the columns of `table` and the version that follows them from `row`.
pub(crate) fn stored_from_row(table: &TableSchema, row: &Row) -> Result<StoredRow, Error> {
    let values = table
        .columns
        .iter()
        .enumerate()
        .map(|(place, column)| decode_column(row, place, column.column_type));
    let values = values
        .collect::<Result<_, _>>()
        .map_err(|cause| error::unreadable_row(table.name, &cause))?;
    let version: i64 = row
        .try_get(table.columns.len())
        .map_err(|cause| error::unreadable_row(table.name, &cause))?;
    Ok(StoredRow {
        row: onward_store::TableRow(values),
        version: count_from_sql(version)?,
    })
}

fn decode_column(
    row: &Row,
    place: usize,
    of: ColumnType,
) -> Result<ColumnValue, tokio_postgres::Error> {
    let value = match of {
        ColumnType::Int | ColumnType::Serial => {
            row.try_get::<_, Option<i64>>(place)?.map(ColumnValue::Int)
        }
        ColumnType::Bool => row
            .try_get::<_, Option<bool>>(place)?
            .map(ColumnValue::Bool),
        ColumnType::Text => row
            .try_get::<_, Option<&str>>(place)?
            .map(|text| ColumnValue::Text(SharedText::from(text))),
        ColumnType::Bytes => row
            .try_get::<_, Option<&[u8]>>(place)?
            .map(|bytes| ColumnValue::Bytes(Arc::from(bytes))),
        ColumnType::Time => row
            .try_get::<_, Option<PostgresTimestamp>>(place)?
            .map(|at| ColumnValue::Time(at.0)),
    };
    Ok(value.unwrap_or(ColumnValue::Null))
}

/// Converts a count to SQL's signed integer; larger values are clamped to `i64::MAX`.
pub(crate) fn count_to_sql(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a count from SQL's signed integer. Fails if it is negative.
pub(crate) fn count_from_sql(count: i64) -> Result<u64, Error> {
    u64::try_from(count).map_err(|_| Error::Corrupt(format!("a count of {count}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timestamp_round_trips() {
        for at in [
            Timestamp::MIN,
            Timestamp::EPOCH,
            Timestamp::EPOCH.plus_ms(1),
            Timestamp::MAX,
        ] {
            let mut raw = BytesMut::new();
            PostgresTimestamp(at)
                .to_sql(&SqlType::TIMESTAMPTZ, &mut raw)
                .unwrap();
            assert_eq!(
                PostgresTimestamp::from_sql(&SqlType::TIMESTAMPTZ, &raw).unwrap(),
                PostgresTimestamp(at)
            );
        }
    }

    #[test]
    fn infinity_is_not_a_timestamp() {
        for infinity in [i64::MIN, i64::MAX] {
            assert!(
                PostgresTimestamp::from_sql(&SqlType::TIMESTAMPTZ, &infinity.to_be_bytes())
                    .is_err()
            );
        }
    }

    #[test]
    fn counts_beyond_the_sql_range_are_clamped() {
        assert_eq!(count_to_sql(u64::MAX), i64::MAX);
        assert_eq!(count_to_sql(7), 7);
        assert!(count_from_sql(-1).is_err());
    }
}
