//! The migrations create the declared tables and no others.

use std::collections::{BTreeMap, BTreeSet};

use onward_store::{ColumnSchema, ColumnType, TableSchema, tables};
use tokio_postgres::Client;

use crate::server::{connect, fresh};

const SPECIAL: [&str; 5] = [
    "journal",
    "onward_migrations",
    "run_events",
    "runs",
    "writers",
];

#[tokio::test]
async fn the_schema_matches_the_declared_tables() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    let sql =
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
    let found: BTreeSet<String> = client
        .query(sql, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let described = tables::ALL_TABLES
        .iter()
        .map(|table| table.name)
        .chain(SPECIAL)
        .map(str::to_owned)
        .collect();
    assert_eq!(found, described);
    for table in tables::ALL_TABLES {
        assert_eq!(
            columns(&client, table.name).await,
            described_columns(table),
            "{}",
            table.name
        );
        assert_eq!(
            indexes(&client, table.name).await,
            described_indexes(table),
            "{}",
            table.name
        );
    }
}

/// Name, type, whether the column is nullable, and whether the database assigns its values.
type Described = (String, String, bool, bool);

/// The columns in any order: those that a later migration added follow the version.
async fn columns(client: &Client, table: &str) -> BTreeSet<Described> {
    let sql = "SELECT column_name::text, data_type || coalesce(' ' || collation_name, ''), is_nullable = 'YES', \
               is_identity = 'YES' AND identity_generation = 'BY DEFAULT' FROM information_schema.columns \
               WHERE table_schema = 'public' AND table_name = $1";
    let rows = client.query(sql, &[&table]).await.unwrap();
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect()
}

fn described_columns(table: &TableSchema) -> BTreeSet<Described> {
    let sql_type = |of: ColumnType| match of {
        ColumnType::Int | ColumnType::Serial => "bigint",
        ColumnType::Bool => "boolean",
        ColumnType::Text => "text C",
        ColumnType::Bytes => "bytea",
        ColumnType::Time => "timestamp with time zone",
    };
    let described = |column: &ColumnSchema| {
        (
            column.name.to_owned(),
            sql_type(column.column_type).to_owned(),
            column.nullable,
            column.column_type == ColumnType::Serial,
        )
    };
    let version = ("version".to_owned(), "bigint".to_owned(), false, false);
    table
        .columns
        .iter()
        .map(described)
        .chain([version])
        .collect()
}

/// The columns of each index by its name.
async fn indexes(client: &Client, table: &str) -> BTreeMap<String, Vec<String>> {
    let sql = "SELECT index.relname::text, array_agg(attname::text ORDER BY place) FROM pg_index \
               JOIN pg_class AS index ON index.oid = indexrelid \
               CROSS JOIN LATERAL unnest(indkey::int2[]) WITH ORDINALITY AS key(number, place) \
               JOIN pg_attribute ON attrelid = indrelid AND attnum = key.number \
               WHERE indrelid = $1::text::regclass AND indpred IS NULL GROUP BY 1";
    client
        .query(sql, &[&table])
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

fn described_indexes(table: &TableSchema) -> BTreeMap<String, Vec<String>> {
    let name = table.name;
    let owned = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<String>>()
    };
    let key: Vec<&str> = table
        .key_columns()
        .iter()
        .map(|column| column.name)
        .collect();
    let unique = table
        .unique
        .iter()
        .map(|set| (format!("{name}_{}_unique", set[set.len() - 1]), owned(set)));
    let ordered = table.indexes.iter().map(|index| {
        (
            format!("{name}_{}", index.name.to_lowercase()),
            owned(&table.scan_order(Some(index))),
        )
    });
    [(format!("{name}_pkey"), owned(&key))]
        .into_iter()
        .chain(unique)
        .chain(ordered)
        .collect()
}

#[tokio::test]
async fn unique_sets_are_enforced_by_the_database() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    let sql =
        "SELECT count(*) FROM pg_constraint WHERE conname LIKE '%\\_unique' AND contype = 'u'";
    let found: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    let sets = tables::ALL_TABLES
        .iter()
        .map(|table| table.unique.len())
        .sum::<usize>();
    // The unique columns of run events are the idempotency key and the event id.
    assert_eq!(usize::try_from(found).unwrap(), sets + 2);
}

#[tokio::test]
async fn a_statement_fails_only_if_rows_are_not_at_their_expected_version() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    for (actual, wanted) in [(0_i64, 0_i64), (3, 3)] {
        let row = client
            .query_one("SELECT onward_require($1, $2)", &[&actual, &wanted])
            .await
            .unwrap();
        assert_eq!(row.get::<_, i64>(0), actual);
    }
    for (actual, wanted) in [(0_i64, 1_i64), (1, 0)] {
        let error = client
            .query_one("SELECT onward_require($1, $2)", &[&actual, &wanted])
            .await
            .unwrap_err();
        assert_eq!(
            error.code().map(tokio_postgres::error::SqlState::code),
            Some("OW001")
        );
    }
}
