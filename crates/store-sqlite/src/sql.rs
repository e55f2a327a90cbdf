//! Generates the SQL statements for tables from their schemas. Each distinct text is prepared once
//! per connection.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use onward_base::Timestamp;
use onward_store::{ChangedColumns, ColumnSchema, ColumnValue, TableScan, TableSchema, tables};

/// The statements of one table by key; built once, because they are used constantly.
pub(crate) struct TableStatements {
    /// Inserts a row; the parameters are all columns in their order.
    pub(crate) insert: String,
    updates: StatementCache,
    column_updates: StatementCache,
    pub(crate) delete: String,
    pub(crate) by_key: String,
    /// Selects a row by unique columns, one statement for each set in `table.unique`.
    pub(crate) by_unique: Vec<String>,
}

pub(crate) fn table_statements(table: &TableSchema) -> &'static TableStatements {
    static ALL: LazyLock<HashMap<&'static str, TableStatements>> = LazyLock::new(|| {
        tables::ALL_TABLES
            .map(|table| (table.name, TableStatements::new(table)))
            .into()
    });
    &ALL[table.name]
}

impl TableStatements {
    fn new(table: &TableSchema) -> Self {
        let key: Vec<&str> = table
            .key_columns()
            .iter()
            .map(|column| column.name)
            .collect();
        Self {
            insert: build_insert(table),
            updates: StatementCache::default(),
            column_updates: StatementCache::default(),
            delete: format!(
                "DELETE FROM {} WHERE {}",
                table.name,
                equality_conditions(&key)
            ),
            by_key: build_select_by(table, &key),
            by_unique: table
                .unique
                .iter()
                .map(|columns| build_select_by(table, columns))
                .collect(),
        }
    }

    /// Updates a row; the parameters are all columns in their order, then the version. Only changed
    /// columns are set, because SQLite would rewrite the index entries of the others.
    pub(crate) fn update_statement(
        &self,
        table: &TableSchema,
        changed: ChangedColumns,
    ) -> Arc<str> {
        self.updates
            .get_or_build(changed, || build_update(table, changed))
    }

    /// Updates a row conditionally; the parameters are the key columns, the changed columns, and
    /// the version that the row must have.
    pub(crate) fn column_update_statement(
        &self,
        table: &TableSchema,
        changed: ChangedColumns,
    ) -> Arc<str> {
        self.column_updates
            .get_or_build(changed, || build_column_update(table, changed))
    }
}

/// Statements by the set of columns that they change.
#[derive(Default)]
struct StatementCache(RwLock<HashMap<ChangedColumns, Arc<str>>>);

impl StatementCache {
    fn get_or_build(&self, changed: ChangedColumns, write: impl FnOnce() -> String) -> Arc<str> {
        let known = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&changed)
            .map(Arc::clone);
        known.unwrap_or_else(|| {
            let text: Arc<str> = write().into();
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(changed, Arc::clone(&text));
            text
        })
    }
}

/// Formats `a, b, c`.
fn column_list(columns: &[ColumnSchema]) -> String {
    columns
        .iter()
        .map(|column| column.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Formats `a = ?1 AND b = ?2`.
fn equality_conditions(columns: &[&str]) -> String {
    columns
        .iter()
        .enumerate()
        .map(|(place, name)| format!("{name} = ?{}", place + 1))
        .collect::<Vec<_>>()
        .join(" AND ")
}

fn placeholder_list(count: usize) -> String {
    (1..=count)
        .map(|place| format!("?{place}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn build_insert(table: &TableSchema) -> String {
    let (columns, values) = (
        column_list(table.columns),
        placeholder_list(table.columns.len()),
    );
    format!(
        "INSERT INTO {} ({columns}, version) VALUES ({values}, 1)",
        table.name
    )
}

fn build_update(table: &TableSchema, changed: ChangedColumns) -> String {
    let key: Vec<&str> = table
        .key_columns()
        .iter()
        .map(|column| column.name)
        .collect();
    let changes = table
        .columns
        .iter()
        .enumerate()
        .filter(|(place, _)| changed.contains(*place));
    let set: String = changes
        .map(|(place, column)| format!("{} = ?{}, ", column.name, place + 1))
        .collect();
    let version = table.columns.len() + 1;
    format!(
        "UPDATE {} SET {set}version = ?{version} WHERE {}",
        table.name,
        equality_conditions(&key)
    )
}

fn build_column_update(table: &TableSchema, changed: ChangedColumns) -> String {
    let key: Vec<&str> = table
        .key_columns()
        .iter()
        .map(|column| column.name)
        .collect();
    let columns: Vec<&str> = changed
        .positions()
        .map(|place| table.columns[place].name)
        .collect();
    let set: String = columns
        .iter()
        .zip(table.key_length + 1..)
        .map(|(name, place)| format!("{name} = ?{place}, "))
        .collect();
    let version = table.key_length + columns.len() + 1;
    format!(
        "UPDATE {} SET {set}version = version + 1 WHERE {} AND version = ?{version}",
        table.name,
        equality_conditions(&key)
    )
}

fn build_select_by(table: &TableSchema, columns: &[&str]) -> String {
    let wanted = equality_conditions(columns);
    format!(
        "SELECT {}, version FROM {} WHERE {wanted}",
        column_list(table.columns),
        table.name
    )
}

/// Builds the statement of a scan. The parameters are the equal values, the upper bound, the row to
/// start after, and the limit.
pub(crate) fn build_scan(scan: &TableScan) -> String {
    let order = scan.table.scan_order(scan.index);
    let mut wanted: Vec<String> = Vec::new();
    let mut place = 0;
    let mut next = || {
        place += 1;
        format!("?{place}")
    };
    for name in order.iter().take(scan.equal.len()) {
        wanted.push(format!("{name} = {}", next()));
    }
    if let Some(until) = &scan.until {
        let name = order[scan.equal.len()];
        wanted.push(format!("{name} <= {}", next()));
        // The partial index omits [`Timestamp::MAX`] (never due); SQLite uses it only if the
        // condition excludes that value explicitly.
        if matches!(until, ColumnValue::Time(at) if *at < Timestamp::MAX) {
            wanted.push(format!("{name} < {}", Timestamp::MAX.as_micros()));
        }
    }
    if let Some(after) = &scan.after {
        let values: Vec<String> = after.iter().map(|_| next()).collect();
        let beyond = if scan.is_reversed { "<" } else { ">" };
        wanted.push(format!(
            "({}) {beyond} ({})",
            order.join(", "),
            values.join(", ")
        ));
    }
    let filter = if wanted.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", wanted.join(" AND "))
    };
    let (columns, table) = (column_list(scan.table.columns), scan.table.name);
    let order = order.join(if scan.is_reversed { " DESC, " } else { ", " });
    let last = if scan.is_reversed { " DESC" } else { "" };
    format!(
        "SELECT {columns}, version FROM {table}{filter} ORDER BY {order}{last} LIMIT {}",
        next()
    )
}

#[cfg(test)]
mod tests {
    use onward_store::{
        ChangedColumns, ColumnSchema, ColumnType, ColumnValue, IndexSchema, TableRow, TableScan,
        TableSchema,
    };

    /// A table with a key of two columns and an index that does not start with the key.
    const REMINDERS: &TableSchema = &TableSchema {
        name: "reminders",
        columns: &[
            column("execution_id", ColumnType::Bytes),
            column("promise", ColumnType::Int),
            column("shard", ColumnType::Int),
            column("fire_at", ColumnType::Time),
        ],
        key_length: 2,
        unique: &[],
        indexes: &[BY_DUE],
    };
    const BY_DUE: IndexSchema = IndexSchema {
        name: "BY_DUE",
        columns: &["shard", "fire_at"],
    };

    const fn column(name: &'static str, column_type: ColumnType) -> ColumnSchema {
        ColumnSchema {
            name,
            column_type,
            nullable: false,
        }
    }

    #[test]
    fn statements_follow_the_table_schema() {
        assert_eq!(
            super::TableStatements::new(REMINDERS).insert,
            "INSERT INTO reminders (execution_id, promise, shard, fire_at, version) VALUES (?1, ?2, ?3, ?4, 1)"
        );
        let row = |fire_at| {
            TableRow(vec![
                ColumnValue::Null,
                ColumnValue::Int(1),
                ColumnValue::Int(2),
                ColumnValue::Int(fire_at),
            ])
        };
        let changed = ChangedColumns::between_rows(&row(3), &row(4));
        assert_eq!(
            &*super::TableStatements::new(REMINDERS).update_statement(REMINDERS, changed),
            "UPDATE reminders SET fire_at = ?4, version = ?5 WHERE execution_id = ?1 AND promise = ?2"
        );
        assert_eq!(
            &*super::TableStatements::new(REMINDERS)
                .update_statement(REMINDERS, ChangedColumns::between_rows(&row(3), &row(3))),
            "UPDATE reminders SET version = ?5 WHERE execution_id = ?1 AND promise = ?2"
        );
        assert_eq!(
            &*super::TableStatements::new(REMINDERS).column_update_statement(REMINDERS, changed),
            "UPDATE reminders SET fire_at = ?3, version = version + 1 WHERE execution_id = ?1 AND promise = ?2 AND version = ?4"
        );
        assert_eq!(
            super::TableStatements::new(REMINDERS).delete,
            "DELETE FROM reminders WHERE execution_id = ?1 AND promise = ?2"
        );
        let due = TableScan {
            table: REMINDERS,
            index: Some(&BY_DUE),
            equal: vec![ColumnValue::Int(1)],
            until: Some(ColumnValue::Time(onward_base::Timestamp::EPOCH)),
            after: None,
            is_reversed: false,
            limit: 1_000,
        };
        assert_eq!(
            super::build_scan(&due),
            "SELECT execution_id, promise, shard, fire_at, version FROM reminders WHERE shard = ?1 AND fire_at <= ?2 \
             AND fire_at < 253402300799999999 ORDER BY shard, fire_at, execution_id, promise LIMIT ?3"
        );
    }
}
