//! Generates the SQL statements for tables from their [`TableSchema`].
//!
//! Statements with array parameters look up one row after the other, in the order of the arrays;
//! the lateral subqueries enforce this. So all transactions lock rows in the same order, and a plan
//! made while a table was empty is still good when the table is large.

use onward_store::{ChangedColumns, ColumnSchema, TableSchema};

use crate::value::sql_type_name;

/// Row lock that protects a row against concurrent changes until the end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLock {
    /// Exclusive: no other transaction may lock the row.
    Update,
    /// Shared: other transactions may also hold a shared lock.
    Share,
}

/// The conditions that a scan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanShape {
    /// Number of leading columns of the order that have a given value.
    pub(crate) equal: usize,
    /// Whether the next column has an upper bound.
    pub(crate) has_until: bool,
    /// Whether the scan starts after a given row.
    pub(crate) has_after: bool,
    /// Whether the order is descending.
    pub(crate) is_reversed: bool,
}

/// Returns the names of the key columns.
pub(crate) fn key_column_names(table: &TableSchema) -> Vec<&'static str> {
    table
        .key_columns()
        .iter()
        .map(|column| column.name)
        .collect()
}

/// Selects and locks the rows with the given values in the columns `by`.
pub(crate) fn build_select_locked(table: &TableSchema, by: &[&str], lock: RowLock) -> String {
    let columns = by
        .iter()
        .filter_map(|name| table.column_position(name))
        .map(|place| typed_column(&table.columns[place]));
    let lock = if lock == RowLock::Update {
        "UPDATE"
    } else {
        "SHARE"
    };
    format!(
        "SELECT found.* FROM {given} \
         CROSS JOIN LATERAL (SELECT {all} FROM {name} AS held WHERE {matching} FOR {lock}) AS found",
        given = unnest_parameters(columns),
        all = join_strings(", ", column_names(table).map(|name| format!("held.{name}"))),
        name = table.name,
        matching = match_conditions(by),
    )
}

/// Inserts rows with their versions.
pub(crate) fn build_insert(table: &TableSchema) -> String {
    format!(
        "INSERT INTO {} ({}) SELECT * FROM {}",
        table.name,
        column_list(table),
        unnest_parameters(typed_columns(table))
    )
}

/// Replaces locked rows and their versions.
pub(crate) fn build_update(table: &TableSchema) -> String {
    let changed = column_names(table)
        .skip(table.key_length)
        .map(|name| format!("{name} = new.{name}"));
    format!(
        "UPDATE {name} AS old SET {set} FROM (SELECT given.*, found.place FROM {given} {places}) AS new \
         WHERE old.ctid = new.place",
        name = table.name,
        set = join_strings(", ", changed),
        given = unnest_parameters(typed_columns(table)),
        places = lateral_ctid_join(table),
    )
}

/// Changes some columns of rows at the given versions. Raises an error if a row is not at its
/// version; the last parameter is the expected number of rows.
pub(crate) fn build_column_update(table: &TableSchema, changed: ChangedColumns) -> String {
    let columns: Vec<&ColumnSchema> = changed
        .positions()
        .map(|place| &table.columns[place])
        .collect();
    let set = columns
        .iter()
        .map(|column| format!("{name} = new.{name}, ", name = column.name));
    let given_columns = table
        .key_columns()
        .iter()
        .chain(columns.iter().copied())
        .map(typed_column);
    format!(
        "WITH amended AS (UPDATE {name} AS old SET {set}version = old.version + 1 \
         FROM (SELECT given.*, found.place FROM {given} {places}) AS new \
         WHERE old.ctid = new.place AND old.version = new.version RETURNING 1) \
         SELECT onward_require(count(*), ${wanted}::bigint) FROM amended",
        name = table.name,
        set = join_strings("", set),
        given = unnest_parameters(given_columns.chain([("version", "bigint")])),
        places = lateral_ctid_join(table),
        wanted = table.key_length + columns.len() + 2,
    )
}

/// Deletes locked rows.
pub(crate) fn build_delete(table: &TableSchema) -> String {
    format!(
        "DELETE FROM {name} AS old USING (SELECT found.place FROM {given} {places}) AS gone \
         WHERE old.ctid = gone.place",
        name = table.name,
        given = unnest_parameters(table.key_columns().iter().map(typed_column)),
        places = lateral_ctid_join(table),
    )
}

/// Raises an error if a row with one of the given keys exists.
pub(crate) fn build_require_absent(table: &TableSchema) -> String {
    format!(
        "SELECT onward_require(count(*), 0) FROM {given} {places}",
        given = unnest_parameters(table.key_columns().iter().map(typed_column)),
        places = lateral_ctid_join(table),
    )
}

/// Selects the row with a given key.
pub(crate) fn build_select_by_key(table: &TableSchema) -> String {
    let same = key_column_names(table)
        .into_iter()
        .enumerate()
        .map(|(place, name)| format!("{name} = ${}", place + 1));
    format!(
        "SELECT {} FROM {} WHERE {}",
        column_list(table),
        table.name,
        join_strings(" AND ", same)
    )
}

/// Selects rows in an order. The parameters are the equal values, the upper bound, the row to start
/// after, and the limit.
pub(crate) fn build_scan(table: &TableSchema, order: &[&str], shape: ScanShape) -> String {
    let mut place = 0;
    let mut next = || {
        place += 1;
        format!("${place}")
    };
    let mut conditions: Vec<String> = order[..shape.equal]
        .iter()
        .map(|name| format!("{name} = {}", next()))
        .collect();
    if shape.has_until {
        conditions.push(format!("{} <= {}", order[shape.equal], next()));
    }
    if shape.has_after {
        let after = join_strings(", ", order.iter().map(|_| next()));
        let beyond = if shape.is_reversed { "<" } else { ">" };
        conditions.push(format!("({}) {beyond} ({after})", order.join(", ")));
    }
    let filter = if conditions.is_empty() {
        String::new()
    } else {
        format!("WHERE {} ", conditions.join(" AND "))
    };
    let order = order.join(if shape.is_reversed { " DESC, " } else { ", " });
    let last = if shape.is_reversed { " DESC" } else { "" };
    format!(
        "SELECT {} FROM {} {filter}ORDER BY {order}{last} LIMIT {}",
        column_list(table),
        table.name,
        next()
    )
}

/// Takes numbers from the sequence of a table whose key the store assigns.
pub(crate) fn build_next_serials(table: &TableSchema) -> String {
    format!(
        "SELECT nextval('{}_{}_seq') FROM generate_series(1, $1::bigint)",
        table.name, table.columns[0].name
    )
}

/// All columns and the version, in the order that
/// [`stored_from_row`](crate::value::stored_from_row) expects.
fn column_list(table: &TableSchema) -> String {
    join_strings(", ", column_names(table).map(str::to_owned))
}

fn column_names(table: &TableSchema) -> impl Iterator<Item = &'static str> {
    table
        .columns
        .iter()
        .map(|column| column.name)
        .chain(["version"])
}

fn typed_column(column: &ColumnSchema) -> (&'static str, &'static str) {
    (column.name, sql_type_name(column.column_type))
}

fn typed_columns(table: &TableSchema) -> impl Iterator<Item = (&'static str, &'static str)> {
    table
        .columns
        .iter()
        .map(typed_column)
        .chain([("version", "bigint")])
}

/// Rows built from array parameters, one array per column.
fn unnest_parameters(columns: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let (names, types): (Vec<&str>, Vec<&str>) = columns.unzip();
    let arrays = types
        .iter()
        .enumerate()
        .map(|(place, of)| format!("${}::{of}[]", place + 1));
    format!(
        "unnest({}) AS given({})",
        join_strings(", ", arrays),
        names.join(", ")
    )
}

fn match_conditions(names: &[&str]) -> String {
    join_strings(
        " AND ",
        names
            .iter()
            .map(|name| format!("held.{name} = given.{name}")),
    )
}

/// Joins the physical position (`ctid`) of the rows with the given keys.
fn lateral_ctid_join(table: &TableSchema) -> String {
    format!(
        "CROSS JOIN LATERAL (SELECT held.ctid AS place FROM {} AS held WHERE {} OFFSET 0) AS found",
        table.name,
        match_conditions(&key_column_names(table))
    )
}

fn join_strings(separator: &str, parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use onward_store::TableRecord as _;
    use onward_store::tables::InboxMessageRow;
    use onward_store::{ColumnType, IndexSchema};

    use super::*;

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
    fn rows_are_locked_in_the_given_order() {
        assert_eq!(
            build_select_locked(REMINDERS, &key_column_names(REMINDERS), RowLock::Update),
            "SELECT found.* FROM unnest($1::bytea[], $2::bigint[]) AS given(execution_id, promise) CROSS JOIN LATERAL \
             (SELECT held.execution_id, held.promise, held.shard, held.fire_at, held.version FROM reminders AS held \
             WHERE held.execution_id = given.execution_id AND held.promise = given.promise FOR UPDATE) AS found"
        );
    }

    #[test]
    fn a_scan_statement_has_the_conditions_of_its_scan() {
        let order = REMINDERS.scan_order(Some(&BY_DUE));
        let all = "SELECT execution_id, promise, shard, fire_at, version FROM reminders";
        assert_eq!(
            build_scan(
                REMINDERS,
                &order,
                ScanShape {
                    equal: 0,
                    has_until: false,
                    has_after: false,
                    is_reversed: false
                }
            ),
            format!("{all} ORDER BY shard, fire_at, execution_id, promise LIMIT $1")
        );
        assert_eq!(
            build_scan(
                REMINDERS,
                &order,
                ScanShape {
                    equal: 1,
                    has_until: true,
                    has_after: true,
                    is_reversed: false
                }
            ),
            format!(
                "{all} WHERE shard = $1 AND fire_at <= $2 AND (shard, fire_at, execution_id, promise) > \
                 ($3, $4, $5, $6) ORDER BY shard, fire_at, execution_id, promise LIMIT $7"
            )
        );
        assert_eq!(
            build_scan(
                REMINDERS,
                &order,
                ScanShape {
                    equal: 0,
                    has_until: false,
                    has_after: true,
                    is_reversed: true
                }
            ),
            format!(
                "{all} WHERE (shard, fire_at, execution_id, promise) < ($1, $2, $3, $4) \
                 ORDER BY shard DESC, fire_at DESC, execution_id DESC, promise DESC LIMIT $5"
            )
        );
    }

    #[test]
    fn an_update_statement_sets_all_columns_but_the_key() {
        let text = build_update(REMINDERS);
        assert!(text.starts_with(
            "UPDATE reminders AS old SET shard = new.shard, fire_at = new.fire_at, version = new.version FROM"
        ));
    }

    #[test]
    fn a_column_update_counts_the_rows_at_their_expected_version() {
        let text = build_column_update(REMINDERS, ChangedColumns::from_positions([3]));
        assert!(text.starts_with(
            "WITH amended AS (UPDATE reminders AS old SET fire_at = new.fire_at, version = old.version + 1 FROM (SELECT \
             given.*, found.place FROM unnest($1::bytea[], $2::bigint[], $3::timestamptz[], $4::bigint[]) AS \
             given(execution_id, promise, fire_at, version)"
        ));
        assert!(text.ends_with(
            "WHERE old.ctid = new.place AND old.version = new.version RETURNING 1) \
             SELECT onward_require(count(*), $5::bigint) FROM amended"
        ));
    }

    #[test]
    fn serials_come_from_the_sequence_of_the_key() {
        assert!(
            build_next_serials(InboxMessageRow::TABLE).contains("nextval('inbox_message_id_seq')")
        );
    }
}
