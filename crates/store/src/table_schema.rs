//! Tables as data. The rules of a commit are written once, against these descriptions; an adapter only knows how to read
//! and write a row of any table.

use crate::{ColumnType, ColumnValue, RowKey, TableRow};

/// A table: its columns, what identifies a row and how rows are found.
#[derive(Debug)]
pub struct TableSchema {
    /// The name in SQL.
    pub name: &'static str,
    /// All columns but `version`, which every table has.
    pub columns: &'static [ColumnSchema],
    /// How many of the first columns are the key.
    pub key_length: usize,
    /// Columns that are unique together; a row with nothing in one of them is exempt.
    pub unique: &'static [&'static [&'static str]],
    /// The orders in which the table can be scanned, besides that of its key.
    pub indexes: &'static [IndexSchema],
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSchema {
    /// The name in SQL.
    pub name: &'static str,
    /// What it holds.
    pub column_type: ColumnType,
    /// Whether it may hold nothing.
    pub nullable: bool,
}

/// An order in which a table can be scanned. Its columns always hold something.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexSchema {
    /// The name, unique in its table.
    pub name: &'static str,
    /// The columns, most significant first; ties are broken by the key.
    pub columns: &'static [&'static str],
}

impl TableSchema {
    /// Where a column stands.
    pub fn column_position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|it| it.name == column)
    }

    /// The columns of the key.
    pub fn key_columns(&self) -> &'static [ColumnSchema] {
        &self.columns[..self.key_length]
    }

    /// The key of `row`.
    pub fn key_of(&self, row: &TableRow) -> RowKey {
        RowKey(row.0[..self.key_length].to_vec())
    }

    /// Whether the store assigns the key.
    pub fn has_serial_key(&self) -> bool {
        self.columns[0].column_type == ColumnType::Serial
    }

    /// Whether rows are found by this column: it is part of the key, of a unique set or of an index.
    pub fn is_lookup_column(&self, column: &str) -> bool {
        let sets = self
            .unique
            .iter()
            .copied()
            .chain(self.indexes.iter().map(|index| index.columns));
        self.key_columns().iter().any(|it| it.name == column)
            || sets.flatten().any(|name| *name == column)
    }

    /// Whether the column in this place identifies a row, by being part of its key or unique together with others.
    pub fn is_identifying_column(&self, place: usize) -> bool {
        let is_it = |name: &&str| {
            self.columns
                .get(place)
                .is_some_and(|column| column.name == *name)
        };
        place < self.key_length || self.unique.iter().copied().flatten().any(is_it)
    }

    /// The values of `row` in `columns`.
    pub fn select_values(&self, columns: &[&str], row: &TableRow) -> Vec<ColumnValue> {
        let value = |name: &&str| {
            self.column_position(name)
                .map_or(ColumnValue::Null, |place| row.0[place].clone())
        };
        columns.iter().map(value).collect()
    }

    /// The values that must be unique together, for each such set of columns of which none holds nothing.
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

    /// The columns that order a scan: the index's, then those of the key that it lacks.
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

/// A type with a table of its own.
///
/// [`record!`](crate::record) writes the implementation.
pub trait TableRecord: Sized {
    /// Where its rows are.
    const TABLE: &'static TableSchema;

    /// The row that stands for `self`.
    fn to_row(&self) -> TableRow;

    /// The value a row stands for; the reason when it stands for none.
    fn from_row(row: &TableRow) -> Result<Self, String>;
}

/// What can stand in a column.
pub trait ColumnCodec: Sized {
    /// What the column holds.
    const COLUMN_TYPE: ColumnType;
    /// Whether the column may hold nothing.
    const NULLABLE: bool = false;

    /// The value that stands for `self`.
    fn to_value(&self) -> ColumnValue;

    /// What the value stands for; `None` when it stands for nothing of this type.
    fn from_value(value: &ColumnValue) -> Option<Self>;
}

/// Declares a struct together with its table.
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

            fn from_row(row: &$crate::TableRow) -> Result<Self, String> {
                let mut values = row.0.iter();
                Ok(Self {
                    $($field: values
                        .next()
                        .and_then(<$of as $crate::ColumnCodec>::from_value)
                        .ok_or_else(|| format!("{}.{} holds a value it cannot hold", $table, $column))?,)+
                })
            }
        }
    };
}
