//! Statements for any table, from its description. Each distinct text is prepared once a connection.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use onward_journal::Timestamp;
use onward_store::{Changed, Column, Scan, Table, Value, tables};

/// What is done to a table by its key; built once, because it is done all the time.
pub(crate) struct Statements {
    /// All columns are parameters in their order.
    pub(crate) insert: String,
    updates: Texts,
    amendments: Texts,
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
            updates: Texts::default(),
            amendments: Texts::default(),
            delete: format!("DELETE FROM {} WHERE {}", table.name, equal(&key)),
            by_key: by_columns(table, &key),
            by_unique: table.unique.iter().map(|columns| by_columns(table, columns)).collect(),
        }
    }

    /// All columns are parameters in their order, the version is the last. Only those that change are set: SQLite would write
    /// the others into their indexes anew.
    pub(crate) fn update(&self, table: &Table, changed: Changed) -> Arc<str> {
        self.updates.get(changed, || update(table, changed))
    }

    /// The columns of the key are parameters, then those that change, then the version at which the row has to be.
    pub(crate) fn amend(&self, table: &Table, changed: Changed) -> Arc<str> {
        self.amendments.get(changed, || amend(table, changed))
    }
}

/// Statements by the columns that they change.
#[derive(Default)]
struct Texts(RwLock<HashMap<Changed, Arc<str>>>);

impl Texts {
    fn get(&self, changed: Changed, write: impl FnOnce() -> String) -> Arc<str> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&changed).map(Arc::clone);
        known.unwrap_or_else(|| {
            let text: Arc<str> = write().into();
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(changed, Arc::clone(&text));
            text
        })
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

fn update(table: &Table, changed: Changed) -> String {
    let key: Vec<&str> = table.key_columns().iter().map(|column| column.name).collect();
    let changes = table.columns.iter().enumerate().filter(|(place, _)| changed.has(*place));
    let set: String = changes.map(|(place, column)| format!("{} = ?{}, ", column.name, place + 1)).collect();
    let version = table.columns.len() + 1;
    format!("UPDATE {} SET {set}version = ?{version} WHERE {}", table.name, equal(&key))
}

fn amend(table: &Table, changed: Changed) -> String {
    let key: Vec<&str> = table.key_columns().iter().map(|column| column.name).collect();
    let columns: Vec<&str> = changed.places().map(|place| table.columns[place].name).collect();
    let set: String = columns.iter().zip(table.key + 1..).map(|(name, place)| format!("{name} = ?{place}, ")).collect();
    let version = table.key + columns.len() + 1;
    format!("UPDATE {} SET {set}version = version + 1 WHERE {} AND version = ?{version}", table.name, equal(&key))
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
    if let Some(until) = &scan.until {
        let name = order[scan.equal.len()];
        wanted.push(format!("{name} <= {}", next()));
        // What never comes need not be in the index, but SQLite has to see that it is not asked for.
        if matches!(until, Value::Time(at) if *at < Timestamp::MAX) {
            wanted.push(format!("{name} < {}", Timestamp::MAX.as_micros()));
        }
    }
    if let Some(after) = &scan.after {
        let values: Vec<String> = after.iter().map(|_| next()).collect();
        let beyond = if scan.is_reversed { "<" } else { ">" };
        wanted.push(format!("({}) {beyond} ({})", order.join(", "), values.join(", ")));
    }
    let filter = if wanted.is_empty() { String::new() } else { format!(" WHERE {}", wanted.join(" AND ")) };
    let (columns, table) = (list(scan.table.columns), scan.table.name);
    let order = order.join(if scan.is_reversed { " DESC, " } else { ", " });
    let last = if scan.is_reversed { " DESC" } else { "" };
    format!("SELECT {columns}, version FROM {table}{filter} ORDER BY {order}{last} LIMIT {}", next())
}

#[cfg(test)]
mod tests {
    use onward_store::tables::Timer;
    use onward_store::{Changed, Record as _, Row, Scan, Shard, Value};

    #[test]
    fn statements_follow_the_description() {
        assert_eq!(
            super::of(Timer::TABLE).insert,
            "INSERT INTO timers (execution_id, promise, shard, fire_at, version) VALUES (?1, ?2, ?3, ?4, 1)"
        );
        let row = |fire_at| Row(vec![Value::Null, Value::Int(1), Value::Int(2), Value::Int(fire_at)]);
        let changed = Changed::between(&row(3), &row(4));
        assert_eq!(
            &*super::of(Timer::TABLE).update(Timer::TABLE, changed),
            "UPDATE timers SET fire_at = ?4, version = ?5 WHERE execution_id = ?1 AND promise = ?2"
        );
        assert_eq!(
            &*super::of(Timer::TABLE).update(Timer::TABLE, Changed::between(&row(3), &row(3))),
            "UPDATE timers SET version = ?5 WHERE execution_id = ?1 AND promise = ?2"
        );
        assert_eq!(
            &*super::of(Timer::TABLE).amend(Timer::TABLE, changed),
            "UPDATE timers SET fire_at = ?3, version = version + 1 WHERE execution_id = ?1 AND promise = ?2 AND version = ?4"
        );
        assert_eq!(super::of(Timer::TABLE).delete, "DELETE FROM timers WHERE execution_id = ?1 AND promise = ?2");
        let due = Scan::by::<Timer>(Timer::BY_DUE).equal(&Shard(1)).until(&onward_journal::Timestamp::EPOCH);
        assert_eq!(
            super::scan(&due),
            "SELECT execution_id, promise, shard, fire_at, version FROM timers WHERE shard = ?1 AND fire_at <= ?2 \
             AND fire_at < 253402300799999999 ORDER BY shard, fire_at, execution_id, promise LIMIT ?3"
        );
    }
}
