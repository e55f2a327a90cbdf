//! Changes of rows: may it be made, and what is there instead if not.

use crate::{Before, Change, Changed, Conflict, Error, Key, Outcome, Plan, Row, Stored, Table, Write};

/// With `is_trusted`, a row that is to be new or amended is not looked at.
pub(super) fn decide<'a>(
    change: &'a Change,
    before: &mut impl Before,
    plan: &mut Plan<'a>,
    is_trusted: bool,
) -> Result<(), Error> {
    let outcome = match change {
        Change::Insert { table, row } => {
            let clash = if is_trusted { None } else { standing(table, row, before)? };
            match clash {
                None => plan.rows.push(Write::Insert(table, row)),
                Some((_, Clash::Key(key))) => return Err(Conflict::RowExists { table: table.name, key }.into()),
                Some((stored, Clash::Unique(columns))) => {
                    let key = table.key_of(&stored.row);
                    return Err(Conflict::NotUnique { table: table.name, columns, key }.into());
                }
            }
            Outcome::Made
        }
        Change::InsertOrKeep { table, row } => match standing(table, row, before)? {
            Some((stored, _)) => Outcome::Kept(stored),
            None => {
                plan.rows.push(Write::Insert(table, row));
                Outcome::Made
            }
        },
        Change::Update { table, row, version } => {
            let stored = expect_version(table, &table.key_of(row), *version, before)?;
            let changed = Changed::between(&stored.row, row);
            check_unique(table, row, changed, before)?;
            plan.rows.push(Write::Update(table, row, version + 1, changed));
            Outcome::Made
        }
        Change::Amend { table, row, changed, version } => {
            plan.rows.push(if is_trusted {
                Write::Amend(table, row, *version, *changed)
            } else {
                expect_version(table, &table.key_of(row), *version, before)?;
                Write::Update(table, row, version + 1, *changed)
            });
            Outcome::Made
        }
        Change::Delete { table, key, version } => {
            expect_version(table, key, *version, before)?;
            plan.rows.push(Write::Delete(table, key));
            Outcome::Made
        }
        Change::Remove { table, key } => {
            plan.rows.push(Write::Delete(table, key));
            Outcome::Made
        }
    };
    plan.receipt.changes.push(outcome);
    Ok(())
}

/// Why a row cannot stand beside another.
enum Clash {
    Key(Key),
    Unique(&'static [&'static str]),
}

/// The row that stands where `row` is to go, by key or by unique columns.
fn standing(table: &'static Table, row: &Row, before: &mut impl Before) -> Result<Option<(Stored, Clash)>, Error> {
    if !table.is_serial() {
        let key = table.key_of(row);
        if let Some(stored) = before.row(table, &key)? {
            return Ok(Some((stored, Clash::Key(key))));
        }
    }
    for (place, values) in table.unique_values(row) {
        if let Some(stored) = before.row_by_unique(table, place, &values)? {
            return Ok(Some((stored, Clash::Unique(table.unique[place]))));
        }
    }
    Ok(None)
}

/// The row, if it has this version.
fn expect_version(table: &'static Table, key: &Key, expected: u64, before: &mut impl Before) -> Result<Stored, Error> {
    let found = match before.row(table, key)? {
        Some(stored) if stored.version == expected => return Ok(stored),
        other => other.map_or(0, |stored| stored.version),
    };
    Err(Conflict::RowVersion { table: table.name, key: key.clone(), expected, found }.into())
}

/// What has not changed is as unique as it was.
fn check_unique(table: &'static Table, row: &Row, changed: Changed, before: &mut impl Before) -> Result<(), Error> {
    let has_changed = |name: &&str| table.position(name).is_some_and(|place| changed.has(place));
    for (place, values) in table.unique_values(row) {
        if !table.unique[place].iter().any(has_changed) {
            continue;
        }
        let other = before.row_by_unique(table, place, &values)?;
        if let Some(key) = other.map(|other| table.key_of(&other.row)).filter(|key| *key != table.key_of(row)) {
            return Err(Conflict::NotUnique { table: table.name, columns: table.unique[place], key }.into());
        }
    }
    Ok(())
}
