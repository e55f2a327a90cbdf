//! The migrations create exactly the declared tables.

use std::collections::BTreeSet;

use onward_store::{ColumnType, TableSchema, tables};
use rusqlite::Connection;

use crate::Place;

#[test]
fn the_schema_has_every_declared_table_and_column() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for table in tables::ALL_TABLES {
        assert_eq!(columns(&raw, table.name), declared(table), "{}", table.name);
    }
}

/// The columns in any order: those that a later migration added follow the version.
fn columns(raw: &Connection, table: &str) -> BTreeSet<(String, String, bool)> {
    let mut statement = raw
        .prepare("SELECT name, type, \"notnull\" OR pk > 0 FROM pragma_table_info(?1)")
        .unwrap();
    let rows = statement
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

fn declared(table: &TableSchema) -> BTreeSet<(String, String, bool)> {
    let of = |of| match of {
        ColumnType::Int | ColumnType::Bool | ColumnType::Time | ColumnType::Serial => "INTEGER",
        ColumnType::Text => "TEXT",
        ColumnType::Bytes => "BLOB",
    };
    let columns = table.columns.iter().map(|it| {
        (
            it.name.to_owned(),
            of(it.column_type).to_owned(),
            !it.nullable,
        )
    });
    columns
        .chain([("version".to_owned(), "INTEGER".to_owned(), true)])
        .collect()
}

#[test]
fn every_declared_order_and_unique_set_has_an_index() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for table in tables::ALL_TABLES {
        let found = indexes(&raw, table.name);
        for index in table.indexes {
            let columns: Vec<String> = table
                .scan_order(Some(index))
                .iter()
                .map(ToString::to_string)
                .collect();
            let is_covered = found.iter().any(|(_, found)| *found == columns);
            assert!(
                is_covered,
                "{} has no index on {columns:?}: {found:?}",
                table.name
            );
        }
        for unique in table.unique {
            let columns: Vec<String> = unique.iter().map(ToString::to_string).collect();
            assert!(
                found.contains(&(true, columns)),
                "{} does not keep {unique:?} unique",
                table.name
            );
        }
    }
}

/// Returns for each index whether it is unique, and its columns.
fn indexes(raw: &Connection, table: &str) -> BTreeSet<(bool, Vec<String>)> {
    let mut list = raw
        .prepare("SELECT name, \"unique\" FROM pragma_index_list(?1)")
        .unwrap();
    let names = list
        .query_map([table], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?))
        })
        .unwrap();
    let mut info = raw
        .prepare("SELECT name FROM pragma_index_info(?1) ORDER BY seqno")
        .unwrap();
    let columns = |index: &str, info: &mut rusqlite::Statement<'_>| -> Vec<String> {
        info.query_map([index], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    names
        .map(Result::unwrap)
        .map(|(name, unique)| (unique, columns(&name, &mut info)))
        .collect()
}

#[test]
fn due_rows_are_found_with_an_index_and_not_with_a_table_scan() {
    let place = Place::new();
    drop(place.open());
    let raw = place.raw();
    for (sql, index) in [
        (
            "SELECT * FROM runs WHERE run_id > '' AND to_project ORDER BY run_id LIMIT 9",
            "runs_to_project",
        ),
        (
            "SELECT * FROM runs WHERE run_id > '' AND to_deliver ORDER BY run_id LIMIT 9",
            "runs_to_deliver",
        ),
        (
            "SELECT * FROM executions WHERE shard = 1 AND wake_at <= ?1 AND wake_at < 253402300799999999 \
             AND (shard, wake_at, execution_id) > (?2, ?3, ?4) ORDER BY shard, wake_at, execution_id LIMIT 9",
            "executions_by_wake (shard=? AND wake_at",
        ),
        (
            "SELECT * FROM executions WHERE tenant_id = ?1 AND project_id = ?2 AND environment_id = ?3 AND function = ?4 \
             AND start_key = ?5",
            "executions_start_key_unique",
        ),
        (
            "SELECT * FROM executions WHERE tenant_id = ?1 AND project_id = ?2 AND environment_id = ?3 AND state = ?4 \
             AND (tenant_id, project_id, environment_id, state, created_at, execution_id) < (?5, ?6, ?7, ?8, ?9, ?10) \
             ORDER BY tenant_id DESC, project_id DESC, environment_id DESC, state DESC, created_at DESC, execution_id DESC \
             LIMIT 9",
            "executions_by_state (tenant_id=? AND project_id=? AND environment_id=? AND state=?",
        ),
        (
            "SELECT * FROM executions WHERE tenant_id = ?1 AND project_id = ?2 AND environment_id = ?3 AND function = ?4 \
             AND state = ?5 ORDER BY tenant_id, project_id, environment_id, function, state, created_at, execution_id LIMIT 9",
            "executions_by_function (tenant_id=? AND project_id=? AND environment_id=? AND function=? AND state=?",
        ),
        (
            "SELECT * FROM inbox WHERE execution_id = ?1 AND shard = ?2 ORDER BY execution_id, shard, message_id LIMIT 9",
            "inbox_by_execution (execution_id=? AND shard=?",
        ),
    ] {
        let mut explained = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = explained.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan += &format!("{}\n", row.get::<_, String>(3).unwrap());
        }
        assert!(plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}
