//! The same questions to every table there is, so that a new table is tested by being declared.

use super::prelude::*;
use crate::conformance::dump;
use crate::tables;
use crate::{Change, Changed, Row};

/// What is asked of a table.
type Question = for<'a> fn(&'a World<'a>, &'static Table) -> futures_util::future::BoxFuture<'a, Verdict>;

const QUESTIONS: [(&str, Question); 7] = [
    ("read_as_they_were_inserted", |world, table| Box::pin(round_trip(world, table))),
    ("replaced_by_an_update", |world, table| Box::pin(update(world, table))),
    ("changed_in_part_by_an_amendment", |world, table| Box::pin(amend(world, table))),
    ("gone_after_a_delete", |world, table| Box::pin(delete(world, table))),
    ("gone_after_a_removal", |world, table| Box::pin(remove(world, table))),
    ("kept_from_a_stale_update", |world, table| Box::pin(stale(world, table))),
    ("kept_by_insert_or_keep", |world, table| Box::pin(keep(world, table))),
];

/// Where the store assigns the key, no two rows can have the same.
const INSERTED_ONCE: (&str, Question) = ("inserted_once", |world, table| Box::pin(insert_once(world, table)));

pub(super) fn checks() -> Vec<Check> {
    let ask = |table: &'static Table| {
        let check = move |(name, question): (&str, Question)| {
            let name = format!("rows_of_{}_are_{name}", table.name);
            Check::new(Topic::Rows, name, move |world| question(world, table))
        };
        let by_key = [INSERTED_ONCE].into_iter().filter(|_| !table.is_serial());
        QUESTIONS.into_iter().chain(by_key).map(check).chain(unique(table))
    };
    tables::ALL.into_iter().flat_map(ask).collect()
}

/// What must be unique together, in this table.
fn unique(table: &'static Table) -> impl Iterator<Item = Check> {
    (0..table.unique.len()).map(move |place| {
        let name = format!("rows_of_{}_are_unique_in_{}", table.name, table.unique[place].join("_and_"));
        Check::new(Topic::Rows, name, move |world| Box::pin(unique_together(world, table, place)))
    })
}

fn commit(change: Change) -> Commit {
    let mut commit = Commit::new();
    commit.changes.push(change);
    commit
}

/// Inserts rows 1 to `count`, and returns them as they are stored, in the order of their numbers.
async fn filled(world: &World<'_>, table: &'static Table, count: u64) -> Result<Vec<Stored>, Failure> {
    let mut all = Vec::new();
    for number in 1..=count {
        let row = sample::row(table, number);
        world.commit(commit(Change::Insert { table, row: row.clone() })).await?;
        let Row(mut values) = row;
        if table.is_serial() {
            let newest = some("the row", dump::rows(world.store(), table).await?.pop())?;
            values[0] = newest.row.0[0].clone();
        }
        all.push(Stored { row: Row(values), version: 1 });
    }
    Ok(all)
}

/// Another row with the key of this one.
fn rewritten(table: &'static Table, stored: &Stored, number: u64) -> Row {
    let Row(mut values) = sample::row(table, number);
    values[..table.key].clone_from_slice(&stored.row.0[..table.key]);
    Row(values)
}

async fn round_trip(world: &World<'_>, table: &'static Table) -> Verdict {
    let rows = filled(world, table, 20).await?;
    for stored in &rows {
        same("the row by its key", world.row(table, table.key_of(&stored.row)).await?, Some(stored.clone()))?;
    }
    same("how many there are", dump::rows(world.store(), table).await?.len(), 20)
}

async fn update(world: &World<'_>, table: &'static Table) -> Verdict {
    let rows = filled(world, table, 3).await?;
    for version in 1..=3 {
        let row = rewritten(table, &rows[1], 10 + version);
        world.commit(commit(Change::Update { table, row: row.clone(), version })).await?;
        let expected = Stored { row, version: version + 1 };
        same("the row", world.row(table, table.key_of(&rows[1].row)).await?, Some(expected))?;
    }
    for other in [&rows[0], &rows[2]] {
        same("another row", world.row(table, table.key_of(&other.row)).await?, Some(other.clone()))?;
    }
    Ok(())
}

/// What identifies the row, and what is not told to change, stays, whatever is given for it.
async fn amend(world: &World<'_>, table: &'static Table) -> Verdict {
    let rows = filled(world, table, 3).await?;
    let amended: Vec<usize> = (0..table.columns.len()).filter(|place| !table.identifies(*place)).collect();
    let changed = Changed::of(amended);
    let mut expected = rows[1].row.clone();
    for version in 1..=3 {
        let row = rewritten(table, &rows[1], 10 + version);
        changed.apply(&mut expected, &row);
        world.commit(commit(Change::Amend { table, row, changed, version })).await?;
        let expected = Stored { row: expected.clone(), version: version + 1 };
        same("the row", world.row(table, table.key_of(&rows[1].row)).await?, Some(expected))?;
    }
    let row = rewritten(table, &rows[1], 20);
    world.commit(commit(Change::Amend { table, row: row.clone(), changed: Changed::of([]), version: 4 })).await?;
    let expected = Stored { row: expected, version: 5 };
    same("the row without a change", world.row(table, table.key_of(&row)).await?, Some(expected))?;
    for other in [&rows[0], &rows[2]] {
        same("another row", world.row(table, table.key_of(&other.row)).await?, Some(other.clone()))?;
    }
    let changed = Changed::of([0]);
    let refused = world.commit(commit(Change::Amend { table, row, changed, version: 5 })).await;
    holds("the key is not amended", matches!(refused, Err(Error::Invalid(Invalid::Value { .. }))))
}

async fn delete(world: &World<'_>, table: &'static Table) -> Verdict {
    let rows = filled(world, table, 3).await?;
    let key = table.key_of(&rows[1].row);
    world.commit(commit(Change::Delete { table, key: key.clone(), version: 1 })).await?;
    same("the row", world.row(table, key.clone()).await?, None)?;
    same("how many are left", dump::rows(world.store(), table).await?.len(), 2)?;
    let (name, again) =
        (table.name, world.commit(commit(Change::Delete { table, key: key.clone(), version: 1 })).await);
    refused(again, Conflict::RowVersion { table: name, key, expected: 1, found: 0 })?;
    world.commit(commit(Change::Insert { table, row: sample::row(table, 2) })).await?;
    let versions: Vec<u64> = dump::rows(world.store(), table).await?.iter().map(|stored| stored.version).collect();
    same("the versions after inserting it again", versions, vec![1; 3])
}

async fn remove(world: &World<'_>, table: &'static Table) -> Verdict {
    let rows = filled(world, table, 3).await?;
    for (changes, stored) in rows.iter().enumerate() {
        let key = table.key_of(&stored.row);
        for version in 1..=changes as u64 {
            let row = rewritten(table, stored, 10 * version + changes as u64);
            world.commit(commit(Change::Update { table, row, version })).await?;
        }
        let removed = world.commit(commit(Change::Remove { table, key: key.clone() })).await?;
        same("the outcome", removed.changes, vec![Outcome::Made])?;
        same("the row", world.row(table, key.clone()).await?, None)?;
        same("how many are left", dump::rows(world.store(), table).await?.len(), 2 - changes)?;
        let again = world.commit(commit(Change::Remove { table, key: key.clone() })).await?;
        same("the outcome where there is nothing", again.changes, vec![Outcome::Made])?;
        let late = Change::Update { table, row: stored.row.clone(), version: 1 + changes as u64 };
        let conflict = Conflict::RowVersion { table: table.name, key, expected: 1 + changes as u64, found: 0 };
        refused(world.commit(commit(late)).await, conflict)?;
    }
    world.commit(commit(Change::Insert { table, row: sample::row(table, 1) })).await?;
    let versions: Vec<u64> = dump::rows(world.store(), table).await?.iter().map(|stored| stored.version).collect();
    same("the version after inserting it again", versions, vec![1])
}

async fn stale(world: &World<'_>, table: &'static Table) -> Verdict {
    let stored = some("the row", filled(world, table, 1).await?.pop())?;
    let key = table.key_of(&stored.row);
    let row = rewritten(table, &stored, 2);
    world.commit(commit(Change::Update { table, row: row.clone(), version: 1 })).await?;
    for expected in [0, 1, 3, u64::MAX] {
        let conflict = || Conflict::RowVersion { table: table.name, key: key.clone(), expected, found: 2 };
        let late = Change::Update { table, row: stored.row.clone(), version: expected };
        refused(world.commit(commit(late)).await, conflict())?;
        let (row, changed) = (stored.row.clone(), Changed::of([]));
        let late = Change::Amend { table, row, changed, version: expected };
        refused(world.commit(commit(late)).await, conflict())?;
        let late = Change::Delete { table, key: key.clone(), version: expected };
        refused(world.commit(commit(late)).await, conflict())?;
    }
    same("the row", world.row(table, key).await?, Some(Stored { row, version: 2 }))
}

async fn insert_once(world: &World<'_>, table: &'static Table) -> Verdict {
    let stored = some("the row", filled(world, table, 1).await?.pop())?;
    let key = table.key_of(&stored.row);
    let again = Change::Insert { table, row: rewritten(table, &stored, 2) };
    refused(world.commit(commit(again)).await, Conflict::RowExists { table: table.name, key: key.clone() })?;
    same("the row", world.row(table, key).await?, Some(stored))
}

async fn keep(world: &World<'_>, table: &'static Table) -> Verdict {
    let made = world.commit(commit(Change::InsertOrKeep { table, row: sample::row(table, 1) })).await?;
    same("the first outcome", made.changes, vec![Outcome::Made])?;
    let stored = some("the row", dump::rows(world.store(), table).await?.pop())?;
    let is_held = !table.is_serial() || !table.unique_values(&stored.row).is_empty();
    let again = world.commit(commit(Change::InsertOrKeep { table, row: sample::row(table, 1) })).await?;
    let expected = if is_held { Outcome::Kept(stored) } else { Outcome::Made };
    same("the second outcome", again.changes, vec![expected])?;
    same("how many there are", dump::rows(world.store(), table).await?.len(), if is_held { 1 } else { 2 })
}

async fn unique_together(world: &World<'_>, table: &'static Table, place: usize) -> Verdict {
    let rows = filled(world, table, 2).await?;
    let columns = table.unique[place];
    let clash = |number: u64| {
        let Row(mut values) = sample::row(table, number);
        for position in columns.iter().filter_map(|column| table.position(column)) {
            values[position] = rows[0].row.0[position].clone();
        }
        Row(values)
    };
    let conflict = || Conflict::NotUnique { table: table.name, columns, key: table.key_of(&rows[0].row) };
    refused(world.commit(commit(Change::Insert { table, row: clash(3) })).await, conflict())?;
    let receipt = world.commit(commit(Change::InsertOrKeep { table, row: clash(3) })).await?;
    same("the outcome", receipt.changes, vec![Outcome::Kept(rows[0].clone())])?;
    let Row(mut values) = clash(4);
    values[..table.key].clone_from_slice(&rows[1].row.0[..table.key]);
    let update = Change::Update { table, row: Row(values), version: 1 };
    refused(world.commit(commit(update)).await, conflict())?;
    same("how many there are", dump::rows(world.store(), table).await?.len(), 2)
}
