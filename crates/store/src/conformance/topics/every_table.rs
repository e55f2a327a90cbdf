//! The same checks for every table, so that declaring a new table is enough to test it.

use super::prelude::*;
use crate::conformance::store_dump;
use crate::tables;
use crate::{ChangedColumns, RowChange, TableRow};

/// A check that runs against one table.
type TableCheck = for<'a> fn(
    &'a CheckContext<'a>,
    &'static TableSchema,
) -> futures_util::future::BoxFuture<'a, CheckResult>;

const TABLE_CHECKS: [(&str, TableCheck); 7] = [
    ("read_as_they_were_inserted", |world, table| {
        Box::pin(expect_round_trip(world, table))
    }),
    ("replaced_by_an_update", |world, table| {
        Box::pin(expect_updated(world, table))
    }),
    ("changed_in_part_by_a_column_update", |world, table| {
        Box::pin(expect_columns_updated(world, table))
    }),
    ("deleted_by_delete", |world, table| {
        Box::pin(expect_deleted(world, table))
    }),
    ("deleted_by_delete_if_exists", |world, table| {
        Box::pin(expect_deleted_if_exists(world, table))
    }),
    ("not_changed_by_a_stale_update", |world, table| {
        Box::pin(expect_stale_refused(world, table))
    }),
    ("kept_by_insert_or_keep", |world, table| {
        Box::pin(expect_kept(world, table))
    }),
];

/// Only for tables whose key the caller assigns: with a serial key, two rows cannot have the same
/// key.
const INSERTED_ONCE_CHECK: (&str, TableCheck) = ("inserted_once", |world, table| {
    Box::pin(expect_inserted_once(world, table))
});

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let ask = |table: &'static TableSchema| {
        let check = move |(name, question): (&str, TableCheck)| {
            let name = format!("rows_of_{}_are_{name}", table.name);
            ConformanceCheck::new(Topic::Rows, name, move |world| question(world, table))
        };
        let by_key = [INSERTED_ONCE_CHECK]
            .into_iter()
            .filter(|_| !table.has_serial_key());
        TABLE_CHECKS
            .into_iter()
            .chain(by_key)
            .map(check)
            .chain(unique_checks(table))
    };
    tables::ALL_TABLES.into_iter().flat_map(ask).collect()
}

/// Returns one check for each unique set of the table.
fn unique_checks(table: &'static TableSchema) -> impl Iterator<Item = ConformanceCheck> {
    (0..table.unique.len()).map(move |place| {
        let name = format!(
            "rows_of_{}_are_unique_in_{}",
            table.name,
            table.unique[place].join("_and_")
        );
        ConformanceCheck::new(Topic::Rows, name, move |world| {
            Box::pin(expect_unique_together(world, table, place))
        })
    })
}

fn commit_change(change: RowChange) -> Commit {
    let mut commit = Commit::new();
    commit.changes.push(change);
    commit
}

/// Inserts rows 1 to `count` and returns them as stored, in the order of their numbers.
async fn fill_table(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
    count: u64,
) -> Result<Vec<StoredRow>, ConformanceFailure> {
    let mut all = Vec::new();
    for number in 1..=count {
        let row = fixtures::numbered_row(table, number);
        world
            .commit(commit_change(RowChange::Insert {
                table,
                row: row.clone(),
            }))
            .await?;
        let TableRow(mut values) = row;
        if table.has_serial_key() {
            let newest = expect_some(
                "the row",
                store_dump::read_all_rows(world.store(), table).await?.pop(),
            )?;
            values[0] = newest.row.0[0].clone();
        }
        all.push(StoredRow {
            row: TableRow(values),
            version: 1,
        });
    }
    Ok(all)
}

/// Returns a different row with the key of `stored`.
fn row_with_same_key(table: &'static TableSchema, stored: &StoredRow, number: u64) -> TableRow {
    let TableRow(mut values) = fixtures::numbered_row(table, number);
    values[..table.key_length].clone_from_slice(&stored.row.0[..table.key_length]);
    TableRow(values)
}

async fn expect_round_trip(world: &CheckContext<'_>, table: &'static TableSchema) -> CheckResult {
    let rows = fill_table(world, table, 20).await?;
    for stored in &rows {
        expect_same(
            "the row by its key",
            world.read_row(table, table.key_of(&stored.row)).await?,
            Some(stored.clone()),
        )?;
    }
    expect_same(
        "the number of rows",
        store_dump::read_all_rows(world.store(), table).await?.len(),
        20,
    )
}

async fn expect_updated(world: &CheckContext<'_>, table: &'static TableSchema) -> CheckResult {
    let rows = fill_table(world, table, 3).await?;
    for version in 1..=3 {
        let row = row_with_same_key(table, &rows[1], 10 + version);
        world
            .commit(commit_change(RowChange::Update {
                table,
                row: row.clone(),
                version,
            }))
            .await?;
        let expected = StoredRow {
            row,
            version: version + 1,
        };
        expect_same(
            "the row",
            world.read_row(table, table.key_of(&rows[1].row)).await?,
            Some(expected),
        )?;
    }
    for other in [&rows[0], &rows[2]] {
        expect_same(
            "another row",
            world.read_row(table, table.key_of(&other.row)).await?,
            Some(other.clone()),
        )?;
    }
    Ok(())
}

/// Identifying columns and columns outside `changed` must stay unchanged, whatever values the
/// caller passes for them.
async fn expect_columns_updated(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
) -> CheckResult {
    let rows = fill_table(world, table, 3).await?;
    let changed_positions: Vec<usize> = (0..table.columns.len())
        .filter(|place| !table.is_identifying_column(*place))
        .collect();
    let changed = ChangedColumns::from_positions(changed_positions);
    let mut expected = rows[1].row.clone();
    for version in 1..=3 {
        let row = row_with_same_key(table, &rows[1], 10 + version);
        changed.copy_changed(&mut expected, &row);
        world
            .commit(commit_change(RowChange::UpdateColumns {
                table,
                row,
                changed,
                version,
            }))
            .await?;
        let expected = StoredRow {
            row: expected.clone(),
            version: version + 1,
        };
        expect_same(
            "the row",
            world.read_row(table, table.key_of(&rows[1].row)).await?,
            Some(expected),
        )?;
    }
    let row = row_with_same_key(table, &rows[1], 20);
    world
        .commit(commit_change(RowChange::UpdateColumns {
            table,
            row: row.clone(),
            changed: ChangedColumns::from_positions([]),
            version: 4,
        }))
        .await?;
    let expected = StoredRow {
        row: expected,
        version: 5,
    };
    expect_same(
        "the row without a change",
        world.read_row(table, table.key_of(&row)).await?,
        Some(expected),
    )?;
    for other in [&rows[0], &rows[2]] {
        expect_same(
            "another row",
            world.read_row(table, table.key_of(&other.row)).await?,
            Some(other.clone()),
        )?;
    }
    let changed = ChangedColumns::from_positions([0]);
    let refused = world
        .commit(commit_change(RowChange::UpdateColumns {
            table,
            row,
            changed,
            version: 5,
        }))
        .await;
    expect_holds(
        "the key is unchanged",
        matches!(refused, Err(Error::Invalid(InvalidRequest::Value { .. }))),
    )
}

async fn expect_deleted(world: &CheckContext<'_>, table: &'static TableSchema) -> CheckResult {
    let rows = fill_table(world, table, 3).await?;
    let key = table.key_of(&rows[1].row);
    world
        .commit(commit_change(RowChange::Delete {
            table,
            key: key.clone(),
            version: 1,
        }))
        .await?;
    expect_same("the row", world.read_row(table, key.clone()).await?, None)?;
    expect_same(
        "the number of remaining rows",
        store_dump::read_all_rows(world.store(), table).await?.len(),
        2,
    )?;
    let (name, again) = (
        table.name,
        world
            .commit(commit_change(RowChange::Delete {
                table,
                key: key.clone(),
                version: 1,
            }))
            .await,
    );
    expect_refused(
        again,
        CommitConflict::RowVersion {
            table: name,
            key,
            expected: 1,
            found: 0,
        },
    )?;
    world
        .commit(commit_change(RowChange::Insert {
            table,
            row: fixtures::numbered_row(table, 2),
        }))
        .await?;
    let versions: Vec<u64> = store_dump::read_all_rows(world.store(), table)
        .await?
        .iter()
        .map(|stored| stored.version)
        .collect();
    expect_same(
        "the versions after inserting it again",
        versions,
        vec![1; 3],
    )
}

async fn expect_deleted_if_exists(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
) -> CheckResult {
    let rows = fill_table(world, table, 3).await?;
    for (changes, stored) in rows.iter().enumerate() {
        let key = table.key_of(&stored.row);
        for version in 1..=changes as u64 {
            let row = row_with_same_key(table, stored, 10 * version + changes as u64);
            world
                .commit(commit_change(RowChange::Update {
                    table,
                    row,
                    version,
                }))
                .await?;
        }
        let deleted = world
            .commit(commit_change(RowChange::DeleteIfExists {
                table,
                key: key.clone(),
            }))
            .await?;
        expect_same("the outcome", deleted.changes, vec![ChangeOutcome::Applied])?;
        expect_same("the row", world.read_row(table, key.clone()).await?, None)?;
        expect_same(
            "the number of remaining rows",
            store_dump::read_all_rows(world.store(), table).await?.len(),
            2 - changes,
        )?;
        let again = world
            .commit(commit_change(RowChange::DeleteIfExists {
                table,
                key: key.clone(),
            }))
            .await?;
        expect_same(
            "the outcome for a missing row",
            again.changes,
            vec![ChangeOutcome::Applied],
        )?;
        let late = RowChange::Update {
            table,
            row: stored.row.clone(),
            version: 1 + changes as u64,
        };
        let conflict = CommitConflict::RowVersion {
            table: table.name,
            key,
            expected: 1 + changes as u64,
            found: 0,
        };
        expect_refused(world.commit(commit_change(late)).await, conflict)?;
    }
    world
        .commit(commit_change(RowChange::Insert {
            table,
            row: fixtures::numbered_row(table, 1),
        }))
        .await?;
    let versions: Vec<u64> = store_dump::read_all_rows(world.store(), table)
        .await?
        .iter()
        .map(|stored| stored.version)
        .collect();
    expect_same("the version after inserting it again", versions, vec![1])
}

async fn expect_stale_refused(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
) -> CheckResult {
    let stored = expect_some("the row", fill_table(world, table, 1).await?.pop())?;
    let key = table.key_of(&stored.row);
    let row = row_with_same_key(table, &stored, 2);
    world
        .commit(commit_change(RowChange::Update {
            table,
            row: row.clone(),
            version: 1,
        }))
        .await?;
    for expected in [0, 1, 3, u64::MAX] {
        let conflict = || CommitConflict::RowVersion {
            table: table.name,
            key: key.clone(),
            expected,
            found: 2,
        };
        let late = RowChange::Update {
            table,
            row: stored.row.clone(),
            version: expected,
        };
        expect_refused(world.commit(commit_change(late)).await, conflict())?;
        let (row, changed) = (stored.row.clone(), ChangedColumns::from_positions([]));
        let late = RowChange::UpdateColumns {
            table,
            row,
            changed,
            version: expected,
        };
        expect_refused(world.commit(commit_change(late)).await, conflict())?;
        let late = RowChange::Delete {
            table,
            key: key.clone(),
            version: expected,
        };
        expect_refused(world.commit(commit_change(late)).await, conflict())?;
    }
    expect_same(
        "the row",
        world.read_row(table, key).await?,
        Some(StoredRow { row, version: 2 }),
    )
}

async fn expect_inserted_once(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
) -> CheckResult {
    let stored = expect_some("the row", fill_table(world, table, 1).await?.pop())?;
    let key = table.key_of(&stored.row);
    let again = RowChange::Insert {
        table,
        row: row_with_same_key(table, &stored, 2),
    };
    expect_refused(
        world.commit(commit_change(again)).await,
        CommitConflict::RowExists {
            table: table.name,
            key: key.clone(),
        },
    )?;
    expect_same("the row", world.read_row(table, key).await?, Some(stored))
}

async fn expect_kept(world: &CheckContext<'_>, table: &'static TableSchema) -> CheckResult {
    let made = world
        .commit(commit_change(RowChange::InsertOrKeep {
            table,
            row: fixtures::numbered_row(table, 1),
        }))
        .await?;
    expect_same(
        "the first outcome",
        made.changes,
        vec![ChangeOutcome::Applied],
    )?;
    let stored = expect_some(
        "the row",
        store_dump::read_all_rows(world.store(), table).await?.pop(),
    )?;
    let is_held = !table.has_serial_key() || !table.unique_values(&stored.row).is_empty();
    let again = world
        .commit(commit_change(RowChange::InsertOrKeep {
            table,
            row: fixtures::numbered_row(table, 1),
        }))
        .await?;
    let expected = if is_held {
        ChangeOutcome::Kept(stored)
    } else {
        ChangeOutcome::Applied
    };
    expect_same("the second outcome", again.changes, vec![expected])?;
    expect_same(
        "the number of rows",
        store_dump::read_all_rows(world.store(), table).await?.len(),
        if is_held { 1 } else { 2 },
    )
}

async fn expect_unique_together(
    world: &CheckContext<'_>,
    table: &'static TableSchema,
    place: usize,
) -> CheckResult {
    let rows = fill_table(world, table, 2).await?;
    let columns = table.unique[place];
    let clash = |number: u64| {
        let TableRow(mut values) = fixtures::numbered_row(table, number);
        for position in columns
            .iter()
            .filter_map(|column| table.column_position(column))
        {
            values[position] = rows[0].row.0[position].clone();
        }
        TableRow(values)
    };
    let conflict = || CommitConflict::NotUnique {
        table: table.name,
        columns,
        key: table.key_of(&rows[0].row),
    };
    expect_refused(
        world
            .commit(commit_change(RowChange::Insert {
                table,
                row: clash(3),
            }))
            .await,
        conflict(),
    )?;
    let receipt = world
        .commit(commit_change(RowChange::InsertOrKeep {
            table,
            row: clash(3),
        }))
        .await?;
    expect_same(
        "the outcome",
        receipt.changes,
        vec![ChangeOutcome::Kept(rows[0].clone())],
    )?;
    let TableRow(mut values) = clash(4);
    values[..table.key_length].clone_from_slice(&rows[1].row.0[..table.key_length]);
    let update = RowChange::Update {
        table,
        row: TableRow(values),
        version: 1,
    };
    expect_refused(world.commit(commit_change(update)).await, conflict())?;
    expect_same(
        "the number of rows",
        store_dump::read_all_rows(world.store(), table).await?.len(),
        2,
    )
}
