//! Table schemas as data. The commit rules are written once against these descriptions; an adapter
//! only needs to read and write a row of any table.

use thiserror::Error;

use crate::{ColumnType, ColumnValue, RowKey, TableRow};

/// The schema of a table: its columns, key, unique sets and indexes.
#[derive(Debug)]
pub struct TableSchema {
    /// Name of the table in SQL.
    pub name: &'static str,
    /// All columns except `version`, which every table has.
    pub columns: &'static [ColumnSchema],
    /// Number of leading columns that form the key.
    pub key_length: usize,
    /// Sets of columns that must be unique together. A row with a null in one of the columns is
    /// exempt.
    pub unique: &'static [&'static [&'static str]],
    /// The orders in which the table can be scanned, in addition to the order of its key.
    pub indexes: &'static [IndexSchema],
}

/// The schema of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Name of the column in SQL.
    pub name: &'static str,
    /// The type of its values.
    pub column_type: ColumnType,
    /// Whether the column accepts null.
    pub nullable: bool,
}

/// An order in which a table can be scanned. Its columns are never null.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexSchema {
    /// Name of the index, unique in its table.
    pub name: &'static str,
    /// The columns, most significant first; the key breaks ties.
    pub columns: &'static [&'static str],
}

impl TableSchema {
    /// Returns the position of a column, or `None` if the table has no such column.
    pub fn column_position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|it| it.name == column)
    }

    /// Returns the columns of the key.
    pub fn key_columns(&self) -> &'static [ColumnSchema] {
        &self.columns[..self.key_length]
    }

    /// Returns the key of `row`.
    pub fn key_of(&self, row: &TableRow) -> RowKey {
        RowKey(row.0[..self.key_length].to_vec())
    }

    /// Whether the store assigns the key on insert.
    pub fn has_serial_key(&self) -> bool {
        self.columns[0].column_type == ColumnType::Serial
    }

    /// Whether the column is part of the key, of a unique set or of an index.
    pub fn is_lookup_column(&self, column: &str) -> bool {
        let sets = self
            .unique
            .iter()
            .copied()
            .chain(self.indexes.iter().map(|index| index.columns));
        self.key_columns().iter().any(|it| it.name == column)
            || sets.flatten().any(|name| *name == column)
    }

    /// Whether the column at this position identifies a row: it is part of the key or of a unique
    /// set.
    pub fn is_identifying_column(&self, place: usize) -> bool {
        let is_it = |name: &&str| {
            self.columns
                .get(place)
                .is_some_and(|column| column.name == *name)
        };
        place < self.key_length || self.unique.iter().copied().flatten().any(is_it)
    }

    /// Returns the values of `row` in `columns`.
    pub fn select_values(&self, columns: &[&str], row: &TableRow) -> Vec<ColumnValue> {
        let value = |name: &&str| {
            self.column_position(name)
                .map_or(ColumnValue::Null, |place| row.0[place].clone())
        };
        columns.iter().map(value).collect()
    }

    /// Returns the values of each unique set with the set's position in `unique`. Omits the sets
    /// that contain a null.
    pub fn unique_values(&self, row: &TableRow) -> Vec<(usize, Vec<ColumnValue>)> {
        let values =
            |(place, columns): (usize, &&[&str])| (place, self.select_values(columns, row));
        let is_whole =
            |(_, values): &(usize, Vec<ColumnValue>)| !values.contains(&ColumnValue::Null);
        self.unique
            .iter()
            .enumerate()
            .map(values)
            .filter(is_whole)
            .collect()
    }

    /// Returns the columns that order a scan: those of the index, then the key columns that the
    /// index lacks.
    pub fn scan_order(&self, index: Option<&IndexSchema>) -> Vec<&'static str> {
        let mut order: Vec<&'static str> =
            index.map_or_else(Vec::new, |index| index.columns.to_vec());
        let rest = self
            .key_columns()
            .iter()
            .map(|column| column.name)
            .filter(|name| !order.contains(name));
        let rest: Vec<&'static str> = rest.collect();
        order.extend(rest);
        order
    }
}

/// A type whose values are the rows of one table.
///
/// [`define_table!`](crate::define_table) generates the implementation.
pub trait TableRecord: Sized {
    /// The schema of the table.
    const TABLE: &'static TableSchema;

    /// Encodes `self` as a row.
    fn to_row(&self) -> TableRow;

    /// Decodes a row. Fails if a column is missing or holds a value that its type does not have.
    fn from_row(row: &TableRow) -> Result<Self, InvalidColumnValue>;
}

/// A stored row cannot be decoded: a column is missing or holds a value that its type does not
/// have, such as an unknown status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("column {table}.{column} holds an invalid value")]
pub struct InvalidColumnValue {
    /// Name of the table.
    pub table: &'static str,
    /// Name of the column.
    pub column: &'static str,
}

/// A type that can be stored in a column.
pub trait ColumnCodec: Sized {
    /// The type of the column.
    const COLUMN_TYPE: ColumnType;
    /// Whether the column accepts null.
    const NULLABLE: bool = false;

    /// Encodes `self` as a column value.
    fn to_value(&self) -> ColumnValue;

    /// Decodes a column value. Returns `None` if it does not represent a value of this type.
    fn from_value(value: &ColumnValue) -> Option<Self>;
}

/// Declares a struct together with the schema of its table.
#[macro_export]
macro_rules! define_table {
    (
        $(#[$doc:meta])*
        $table:literal, key $key:literal
        $(, unique $([$($unique:literal),+])+)?
        $(, index $($index:ident [$($ordered:literal),+])+)?;
        pub struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $of:ty = $column:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $of,)+ }

        impl $name {
            $($(
                #[doc = concat!("Rows in the order of `", stringify!($($ordered),+), "`.")]
                pub const $index: &'static $crate::IndexSchema =
                    &$crate::IndexSchema { name: stringify!($index), columns: &[$($ordered),+] };
            )+)?
        }

        impl $crate::TableRecord for $name {
            const TABLE: &'static $crate::TableSchema = &$crate::TableSchema {
                name: $table,
                columns: &[$($crate::ColumnSchema {
                    name: $column,
                    column_type: <$of as $crate::ColumnCodec>::COLUMN_TYPE,
                    nullable: <$of as $crate::ColumnCodec>::NULLABLE,
                }),+],
                key_length: $key,
                unique: &[$($(&[$($unique),+]),+)?],
                indexes: &[$($($crate::IndexSchema { name: stringify!($index), columns: &[$($ordered),+] }),+)?],
            };

            fn to_row(&self) -> $crate::TableRow {
                $crate::TableRow(vec![$($crate::ColumnCodec::to_value(&self.$field)),+])
            }

            fn from_row(row: &$crate::TableRow) -> Result<Self, $crate::InvalidColumnValue> {
                let mut values = row.0.iter();
                Ok(Self {
                    $($field: values
                        .next()
                        .and_then(<$of as $crate::ColumnCodec>::from_value)
                        .ok_or($crate::InvalidColumnValue { table: $table, column: $column })?,)+
                })
            }
        }
    };
}
