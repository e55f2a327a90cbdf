//! Applies the store's rules to a group of commits, one after the other, and collects the writes
//! that result.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::Timestamp;
use onward_runs::RunId;
use onward_store::{
    AdmittedCommit, ChangedColumns, ColumnValue, CommitConflict, Duplicates, Error, JournalAppend,
    PlannedEvent, RowKey, RowWrite, RunHead, StoredRow, StoredState as _, TableRow, TableSchema,
    WritePlan, plan_commit,
};

use crate::error::StatementFailure;
use crate::writer::CommitResult;
use crate::writer::load::LoadedState;
use crate::writer::read_set::ReadSet;
use crate::writer::read_set_view::ReadSetView;

/// Result of a group of commits: the replies and the writes. Changes of several commits to the same
/// row are one write.
#[derive(Default)]
pub(super) struct GroupDecision<'a> {
    pub(super) answers: Vec<CommitResult>,
    pub(super) journals: Vec<&'a JournalAppend>,
    pub(super) events: Vec<PlannedEvent<'a>>,
    pub(super) heads: BTreeMap<RunId, RunHead>,
    /// Runs that had no head before.
    pub(super) new_runs: BTreeSet<RunId>,
    /// Writes by table name.
    pub(super) tables: BTreeMap<&'static str, TableWrites<'a>>,
}

/// Writes to the rows of one table.
pub(super) struct TableWrites<'a> {
    pub(super) table: &'static TableSchema,
    pub(super) delete: Vec<RowKey>,
    pub(super) update: Vec<StoredRow>,
    pub(super) insert: Vec<StoredRow>,
    /// Updates of rows that were not read, grouped by the columns that change, with the version
    /// that each row must have.
    pub(super) column_updates: BTreeMap<ChangedColumns, Vec<(&'a TableRow, u64)>>,
    /// Keys of rows that were absent and must stay absent: no write would detect a row inserted
    /// concurrently.
    pub(super) required_absent: Vec<RowKey>,
}

/// Applies the rules to each commit, on the state that the commits before it left.
pub(super) fn decide_commit_group<'a>(
    commits: &[&'a AdmittedCommit],
    wish: &ReadSet<'_>,
    loaded: &mut LoadedState,
    now: Timestamp,
) -> Result<GroupDecision<'a>, StatementFailure> {
    let care = wish.duplicates;
    let mut decided = GroupDecision::default();
    let mut touched: BTreeSet<(&'static str, RowKey)> = BTreeSet::new();
    for commit in commits {
        match plan_commit(
            commit,
            &mut ReadSetView {
                state: &mut loaded.state,
                read_set: wish,
            },
            now,
            care,
        ) {
            Err(error) if care == Duplicates::Optimistic && !is_guard_conflict(&error) => {
                return Err(StatementFailure::Race(error));
            }
            Err(error) => decided.answers.push(Err(error)),
            Ok(plan) => {
                loaded.state.apply_plan(&plan);
                for write in &plan.rows {
                    let table = write.table();
                    let rows = decided
                        .tables
                        .entry(table.name)
                        .or_insert_with(|| TableWrites::for_table(table));
                    if let RowWrite::UpdateIfVersion(_, row, version, changed) = *write {
                        rows.column_updates
                            .entry(changed)
                            .or_default()
                            .push((row, version));
                    } else {
                        touched.insert((
                            table.name,
                            written_key(write, loaded).map_err(StatementFailure::Permanent)?,
                        ));
                    }
                }
                decided.add_plan(plan);
            }
        }
    }
    for (name, key) in touched {
        if let Some(rows) = decided.tables.get_mut(name) {
            rows.resolve_row(key, loaded)
                .map_err(StatementFailure::Permanent)?;
        }
    }
    decided
        .tables
        .values_mut()
        .for_each(TableWrites::sort_column_updates);
    decided.new_runs = decided
        .heads
        .keys()
        .filter(|run| !loaded.runs.contains(*run))
        .cloned()
        .collect();
    Ok(decided)
}

/// Returns `true` if the error cannot be caused by the assumption that rows are new: the rules
/// check these guards first.
const fn is_guard_conflict(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict(CommitConflict::Fenced { .. } | CommitConflict::JournalLength { .. })
    )
}

/// Returns the key of the row that is written. New rows take their serial numbers in the order in
/// which the state assigned them.
fn written_key(write: &RowWrite<'_>, loaded: &mut LoadedState) -> Result<RowKey, Error> {
    match *write {
        RowWrite::Insert(table, _) if table.has_serial_key() => {
            let number = loaded
                .serials
                .get_mut(table.name)
                .and_then(std::collections::VecDeque::pop_front);
            let number = number
                .ok_or_else(|| Error::corrupt("the database assigned no serial number to a row"))?;
            Ok(RowKey(vec![ColumnValue::Int(number)]))
        }
        RowWrite::Insert(table, row)
        | RowWrite::Update(table, row, ..)
        | RowWrite::UpdateIfVersion(table, row, ..) => Ok(table.key_of(row)),
        RowWrite::Delete(_, key) => Ok(key.clone()),
    }
}

impl<'a> GroupDecision<'a> {
    fn add_plan(&mut self, plan: WritePlan<'a>) {
        let WritePlan {
            journals,
            rows: _,
            events,
            heads,
            receipt,
        } = plan;
        self.journals.extend(journals);
        self.events.extend(events);
        self.heads
            .extend(heads.into_iter().map(|head| (head.run_id.clone(), head)));
        self.answers.push(Ok(receipt));
    }

    /// Returns `true` if there is nothing to write and nothing to verify.
    pub(super) fn is_empty(&self) -> bool {
        self.journals.is_empty()
            && self.events.is_empty()
            && self.heads.is_empty()
            && self.tables.is_empty()
    }
}

impl TableWrites<'_> {
    const fn for_table(table: &'static TableSchema) -> Self {
        Self {
            table,
            delete: Vec::new(),
            update: Vec::new(),
            insert: Vec::new(),
            column_updates: BTreeMap::new(),
            required_absent: Vec::new(),
        }
    }

    /// Sorts column updates by key, because rows are locked in that order.
    fn sort_column_updates(&mut self) {
        let key = self.table.key_length;
        self.column_updates
            .values_mut()
            .for_each(|rows| rows.sort_unstable_by(|(a, _), (b, _)| a.0[..key].cmp(&b.0[..key])));
    }

    /// Compares the row before and after all commits to choose between update, delete, insert and
    /// absence check.
    fn resolve_row(&mut self, key: RowKey, loaded: &mut LoadedState) -> Result<(), Error> {
        let after = loaded.state.stored_row(self.table, &key)?;
        let was_there = loaded.rows.contains(&(self.table.name, key.clone()));
        match (was_there, after) {
            (true, Some(stored)) => self.update.push(stored),
            (true, None) => self.delete.push(key),
            (false, Some(stored)) => self.insert.push(stored),
            (false, None) => self.required_absent.push(key),
        }
        Ok(())
    }
}
