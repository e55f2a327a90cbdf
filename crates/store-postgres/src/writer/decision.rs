//! What the rules say to a group of commits, one after the other, and what of it has to be written in the end.

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

/// What a group of commits comes to: the answers, and the writes. What several commits did to one row is one write.
#[derive(Default)]
pub(super) struct GroupDecision<'a> {
    pub(super) answers: Vec<CommitResult>,
    pub(super) journals: Vec<&'a JournalAppend>,
    pub(super) events: Vec<PlannedEvent<'a>>,
    pub(super) heads: BTreeMap<RunId, RunHead>,
    /// Runs that had no head before.
    pub(super) new_runs: BTreeSet<RunId>,
    /// Tables by name, and the rows to write.
    pub(super) tables: BTreeMap<&'static str, TableWrites<'a>>,
}

/// Rows of a table to write.
pub(super) struct TableWrites<'a> {
    pub(super) table: &'static TableSchema,
    pub(super) delete: Vec<RowKey>,
    pub(super) update: Vec<StoredRow>,
    pub(super) insert: Vec<StoredRow>,
    /// Rows that nobody has looked at, by the columns that change, with the version at which each has to be.
    pub(super) amend: BTreeMap<ChangedColumns, Vec<(&'a TableRow, u64)>>,
    /// Keys of rows that were not there, and are not to be there: no write would notice if one were.
    pub(super) required_absent: Vec<RowKey>,
}

/// Asks the rules about each commit, on what the ones before it have left.
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
                        rows.amend.entry(changed).or_default().push((row, version));
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
        .for_each(TableWrites::sort_amendments);
    decided.new_runs = decided
        .heads
        .keys()
        .filter(|run| !loaded.runs.contains(*run))
        .cloned()
        .collect();
    Ok(decided)
}

/// Whether nothing that was taken for new could have been the reason instead: the rules come to these guards first.
const fn is_guard_conflict(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict(CommitConflict::Fenced { .. } | CommitConflict::JournalLength { .. })
    )
}

/// Which row a write is about. New rows take their numbers in the order in which the state has assigned them.
fn written_key(write: &RowWrite<'_>, loaded: &mut LoadedState) -> Result<RowKey, Error> {
    match *write {
        RowWrite::Insert(table, _) if table.has_serial_key() => {
            let number = loaded
                .serials
                .get_mut(table.name)
                .and_then(std::collections::VecDeque::pop_front);
            let number = number.ok_or_else(|| Error::corrupt("a row without a number"))?;
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

    /// Whether there is nothing to write, and nothing to make sure of.
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
            amend: BTreeMap::new(),
            required_absent: Vec::new(),
        }
    }

    /// Rows are locked in the order of their keys.
    fn sort_amendments(&mut self) {
        let key = self.table.key_length;
        self.amend
            .values_mut()
            .for_each(|rows| rows.sort_unstable_by(|(a, _), (b, _)| a.0[..key].cmp(&b.0[..key])));
    }

    /// Compares what a row was with what it is after all commits.
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
