//! Statements for any table, from its description. Each distinct text is prepared once a connection.

use std::collections::HashMap;
use std::sync::LazyLock;

use onward_store::{Column, Scan, Table, tables};

/// What is done to a table by its key; built once, because it is done all the time.
pub(crate) struct Statements {
    /// All columns are parameters in their order.
    pub(crate) insert: String,
    /// All columns are parameters in their order, the version is the last.
    pub(crate) update: String,
    pub(crate) delete: String,
    pub(crate) by_key: String,
    /// For each of `table.unique`.
    pub(crate) by_unique: Vec<String>,
}

pub(crate) fn of(table: &Table) -> &'static Statements {
    static ALL: LazyLock<HashMap<&'static str, Statements>> =
        LazyLock::new(|| tables::ALL.map(|table| (table.name, Statements::new(table))).into());
    &ALL[table.name]
}

impl Statements {
    fn new(table: &Table) -> Self {
        let key: Vec<&str> = table.key_columns().iter().map(|column| column.name).collect();
        Self {
            insert: insert(table),
            update: update(table, &key),
            delete: format!("DELETE FROM {} WHERE {}", table.name, equal(&key)),
            by_key: by_columns(table, &key),
            by_unique: table.unique.iter().map(|columns| by_columns(table, columns)).collect(),
        }
    }
}

/// `a, b, c`.
fn list(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
}

/// `a = ?1 AND b = ?2`.
fn equal(columns: &[&str]) -> String {
    columns.iter().enumerate().map(|(place, name)| format!("{name} = ?{}", place + 1)).collect::<Vec<_>>().join(" AND ")
}

fn placeholders(count: usize) -> String {
    (1..=count).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ")
}

fn insert(table: &Table) -> String {
    let (columns, values) = (list(table.columns), placeholders(table.columns.len()));
    format!("INSERT INTO {} ({columns}, version) VALUES ({values}, 1)", table.name)
}

fn update(table: &Table, key: &[&str]) -> String {
    let set = |(place, column): (usize, &Column)| format!("{} = ?{}", column.name, place + 1);
    let set: Vec<String> = table.columns.iter().enumerate().skip(table.key).map(set).collect();
    let version = table.columns.len() + 1;
    let comma = if set.is_empty() { "" } else { ", " };
    format!("UPDATE {} SET {}{comma}version = ?{version} WHERE {}", table.name, set.join(", "), equal(key))
}

fn by_columns(table: &Table, columns: &[&str]) -> String {
    let wanted = equal(columns);
    format!("SELECT {}, version FROM {} WHERE {wanted}", list(table.columns), table.name)
}

/// The parameters are the equal values, the bound, the place after which to start, and the limit.
pub(crate) fn scan(scan: &Scan) -> String {
    let order = scan.table.order_of(scan.index);
    let mut wanted: Vec<String> = Vec::new();
    let mut place = 0;
    let mut next = || {
        place += 1;
        format!("?{place}")
    };
    for name in order.iter().take(scan.equal.len()) {
        wanted.push(format!("{name} = {}", next()));
    }
    if scan.until.is_some() {
        wanted.push(format!("{} <= {}", order[scan.equal.len()], next()));
    }
    if let Some(after) = &scan.after {
        let values: Vec<String> = after.iter().map(|_| next()).collect();
        wanted.push(format!("({}) > ({})", order.join(", "), values.join(", ")));
    }
    let filter = if wanted.is_empty() { String::new() } else { format!(" WHERE {}", wanted.join(" AND ")) };
    let (columns, table) = (list(scan.table.columns), scan.table.name);
    format!("SELECT {columns}, version FROM {table}{filter} ORDER BY {} LIMIT {}", order.join(", "), next())
}

#[cfg(test)]
mod tests {
    use onward_store::tables::Timer;
    use onward_store::{Record as _, Scan, Shard};

    #[test]
    fn statements_follow_the_description() {
        assert_eq!(
            super::of(Timer::TABLE).insert,
            "INSERT INTO timers (execution_id, promise, shard, fire_at, version) VALUES (?1, ?2, ?3, ?4, 1)"
        );
        assert_eq!(
            super::of(Timer::TABLE).update,
            "UPDATE timers SET shard = ?3, fire_at = ?4, version = ?5 WHERE execution_id = ?1 AND promise = ?2"
        );
        assert_eq!(super::of(Timer::TABLE).delete, "DELETE FROM timers WHERE execution_id = ?1 AND promise = ?2");
        let due = Scan::by::<Timer>(Timer::BY_DUE).equal(&Shard(1)).until(&onward_journal::Timestamp::EPOCH);
        assert_eq!(
            super::scan(&due),
            "SELECT execution_id, promise, shard, fire_at, version FROM timers WHERE shard = ?1 AND fire_at <= ?2 \
             ORDER BY shard, fire_at, execution_id, promise LIMIT ?3"
        );
    }
}
