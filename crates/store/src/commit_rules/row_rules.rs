//! Commit rules for row changes: checks each guard and finds the existing row in a conflict.

use crate::{
    ChangeOutcome, ChangedColumns, CommitConflict, Duplicates, Error, RowChange, RowKey, RowWrite,
    StoredRow, StoredState, TableRow, TableSchema, WritePlan,
};

/// Plans one row change. With [`Duplicates::Optimistic`], a row to insert or to update by columns
/// is not read: the database checks its guard.
#[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
pub(super) fn plan_change<'a>(
    change: &'a RowChange,
    before: &mut impl StoredState,
    plan: &mut WritePlan<'a>,
    duplicates: Duplicates,
) -> Result<(), Error> {
    let outcome = match change {
        RowChange::Insert { table, row } => {
            let clash = if duplicates == Duplicates::Optimistic {
                None
            } else {
                find_clash(table, row, before)?
            };
            match clash {
                None => plan.rows.push(RowWrite::Insert(table, row)),
                Some((_, RowClash::Key(key))) => {
                    return Err(CommitConflict::RowExists {
                        table: table.name,
                        key,
                    }
                    .into());
                }
                Some((stored, RowClash::Unique(columns))) => {
                    let key = table.key_of(&stored.row);
                    return Err(CommitConflict::NotUnique {
                        table: table.name,
                        columns,
                        key,
                    }
                    .into());
                }
            }
            ChangeOutcome::Applied
        }
        RowChange::InsertOrKeep { table, row } => match find_clash(table, row, before)? {
            Some((stored, _)) => ChangeOutcome::Kept(stored),
            None => {
                plan.rows.push(RowWrite::Insert(table, row));
                ChangeOutcome::Applied
            }
        },
        RowChange::Update {
            table,
            row,
            version,
        } => {
            let stored = expect_version(table, &table.key_of(row), *version, before)?;
            let changed = ChangedColumns::between_rows(&stored.row, row);
            check_unique(table, row, changed, before)?;
            plan.rows
                .push(RowWrite::Update(table, row, version + 1, changed));
            ChangeOutcome::Applied
        }
        RowChange::UpdateColumns {
            table,
            row,
            changed,
            version,
        } => {
            plan.rows.push(if duplicates == Duplicates::Optimistic {
                RowWrite::UpdateIfVersion(table, row, *version, *changed)
            } else {
                expect_version(table, &table.key_of(row), *version, before)?;
                RowWrite::Update(table, row, version + 1, *changed)
            });
            ChangeOutcome::Applied
        }
        RowChange::Delete {
            table,
            key,
            version,
        } => {
            expect_version(table, key, *version, before)?;
            plan.rows.push(RowWrite::Delete(table, key));
            ChangeOutcome::Applied
        }
        RowChange::DeleteIfExists { table, key } => {
            plan.rows.push(RowWrite::Delete(table, key));
            ChangeOutcome::Applied
        }
    };
    plan.receipt.changes.push(outcome);
    Ok(())
}

/// Why a row cannot be inserted: its key or a set of its unique columns is taken.
enum RowClash {
    Key(RowKey),
    Unique(&'static [&'static str]),
}

/// Returns the existing row that conflicts with `row`, by key or by unique columns.
fn find_clash(
    table: &'static TableSchema,
    row: &TableRow,
    before: &mut impl StoredState,
) -> Result<Option<(StoredRow, RowClash)>, Error> {
    if !table.has_serial_key() {
        let key = table.key_of(row);
        if let Some(stored) = before.stored_row(table, &key)? {
            return Ok(Some((stored, RowClash::Key(key))));
        }
    }
    for (place, values) in table.unique_values(row) {
        if let Some(stored) = before.row_by_unique(table, place, &values)? {
            return Ok(Some((stored, RowClash::Unique(table.unique[place]))));
        }
    }
    Ok(None)
}

/// Returns the row if it is at the expected version; fails otherwise.
fn expect_version(
    table: &'static TableSchema,
    key: &RowKey,
    expected: u64,
    before: &mut impl StoredState,
) -> Result<StoredRow, Error> {
    let found = match before.stored_row(table, key)? {
        Some(stored) if stored.version == expected => return Ok(stored),
        other => other.map_or(0, |stored| stored.version),
    };
    Err(CommitConflict::RowVersion {
        table: table.name,
        key: key.clone(),
        expected,
        found,
    }
    .into())
}

/// Checks the unique sets that contain a changed column. Unchanged sets are still unique.
fn check_unique(
    table: &'static TableSchema,
    row: &TableRow,
    changed: ChangedColumns,
    before: &mut impl StoredState,
) -> Result<(), Error> {
    let has_changed = |name: &&str| {
        table
            .column_position(name)
            .is_some_and(|place| changed.contains(place))
    };
    for (place, values) in table.unique_values(row) {
        if !table.unique[place].iter().any(has_changed) {
            continue;
        }
        let other = before.row_by_unique(table, place, &values)?;
        if let Some(key) = other
            .map(|other| table.key_of(&other.row))
            .filter(|key| *key != table.key_of(row))
        {
            return Err(CommitConflict::NotUnique {
                table: table.name,
                columns: table.unique[place],
                key,
            }
            .into());
        }
    }
    Ok(())
}
