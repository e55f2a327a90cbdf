//! What the rules say to a group of commits, one after the other, and what of it has to be written in the end.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::Timestamp;
use onward_runs::RunId;
use onward_store::{
    Admitted, Before as _, Care, Changed, Conflict, Error, JournalAppend, Key, Plan, Planned, Row, RunHead, Stored,
    Table, Value, Write, decide,
};

use crate::error::Trouble;
use crate::writer::Answer;
use crate::writer::load::Loaded;
use crate::writer::seen::Seen;
use crate::writer::wish::Wish;

/// What a group of commits comes to: the answers, and the writes. What several commits did to one row is one write.
#[derive(Default)]
pub(super) struct Decided<'a> {
    pub(super) answers: Vec<Answer>,
    pub(super) journals: Vec<&'a JournalAppend>,
    pub(super) events: Vec<Planned<'a>>,
    pub(super) heads: BTreeMap<RunId, RunHead>,
    /// Runs that had no head before.
    pub(super) new_runs: BTreeSet<RunId>,
    /// Tables by name, and the rows to write.
    pub(super) tables: BTreeMap<&'static str, Rows<'a>>,
}

/// Rows of a table to write.
pub(super) struct Rows<'a> {
    pub(super) table: &'static Table,
    pub(super) delete: Vec<Key>,
    pub(super) update: Vec<Stored>,
    pub(super) insert: Vec<Stored>,
    /// Rows that nobody has looked at, by the columns that change, with the version at which each has to be.
    pub(super) amend: BTreeMap<Changed, Vec<(&'a Row, u64)>>,
    /// Keys of rows that were not there, and are not to be there: no write would notice if one were.
    pub(super) absent: Vec<Key>,
}

/// Asks the rules about each commit, on what the ones before it have left.
pub(super) fn decided<'a>(
    commits: &[&'a Admitted],
    wish: &Wish<'_>,
    loaded: &mut Loaded,
    now: Timestamp,
) -> Result<Decided<'a>, Trouble> {
    let care = wish.care;
    let mut decided = Decided::default();
    let mut touched: BTreeSet<(&'static str, Key)> = BTreeSet::new();
    for commit in commits {
        match decide(commit, &mut Seen { state: &mut loaded.state, wish }, now, care) {
            Err(error) if care == Care::Trust && !is_first(&error) => return Err(Trouble::Race(error)),
            Err(error) => decided.answers.push(Err(error)),
            Ok(plan) => {
                loaded.state.write(&plan);
                for write in &plan.rows {
                    let table = write.table();
                    let rows = decided.tables.entry(table.name).or_insert_with(|| Rows::none(table));
                    if let Write::Amend(_, row, version, changed) = *write {
                        rows.amend.entry(changed).or_default().push((row, version));
                    } else {
                        touched.insert((table.name, place(write, loaded).map_err(Trouble::Refused)?));
                    }
                }
                decided.take(plan);
            }
        }
    }
    for (name, key) in touched {
        if let Some(rows) = decided.tables.get_mut(name) {
            rows.settle(key, loaded).map_err(Trouble::Refused)?;
        }
    }
    decided.tables.values_mut().for_each(Rows::sort);
    decided.new_runs = decided.heads.keys().filter(|run| !loaded.runs.contains(*run)).cloned().collect();
    Ok(decided)
}

/// Whether nothing that was taken for new could have been the reason instead: the rules come to these guards first.
const fn is_first(error: &Error) -> bool {
    matches!(error, Error::Conflict(Conflict::Fenced { .. } | Conflict::JournalLength { .. }))
}

/// Which row a write is about. New rows take their numbers in the order in which the state has assigned them.
fn place(write: &Write<'_>, loaded: &mut Loaded) -> Result<Key, Error> {
    match *write {
        Write::Insert(table, _) if table.is_serial() => {
            let number = loaded.serials.get_mut(table.name).and_then(std::collections::VecDeque::pop_front);
            let number = number.ok_or_else(|| Error::corrupt("a row without a number"))?;
            Ok(Key(vec![Value::Int(number)]))
        }
        Write::Insert(table, row) | Write::Update(table, row, ..) | Write::Amend(table, row, ..) => {
            Ok(table.key_of(row))
        }
        Write::Delete(_, key) => Ok(key.clone()),
    }
}

impl<'a> Decided<'a> {
    fn take(&mut self, plan: Plan<'a>) {
        let Plan { journals, rows: _, events, heads, receipt } = plan;
        self.journals.extend(journals);
        self.events.extend(events);
        self.heads.extend(heads.into_iter().map(|head| (head.run_id.clone(), head)));
        self.answers.push(Ok(receipt));
    }

    /// Whether there is nothing to write, and nothing to make sure of.
    pub(super) fn is_empty(&self) -> bool {
        self.journals.is_empty() && self.events.is_empty() && self.heads.is_empty() && self.tables.is_empty()
    }
}

impl Rows<'_> {
    const fn none(table: &'static Table) -> Self {
        Self {
            table,
            delete: Vec::new(),
            update: Vec::new(),
            insert: Vec::new(),
            amend: BTreeMap::new(),
            absent: Vec::new(),
        }
    }

    /// Rows are locked in the order of their keys.
    fn sort(&mut self) {
        let key = self.table.key;
        self.amend.values_mut().for_each(|rows| rows.sort_unstable_by(|(a, _), (b, _)| a.0[..key].cmp(&b.0[..key])));
    }

    /// Compares what a row was with what it is after all commits.
    fn settle(&mut self, key: Key, loaded: &mut Loaded) -> Result<(), Error> {
        let after = loaded.state.row(self.table, &key)?;
        let was_there = loaded.rows.contains(&(self.table.name, key.clone()));
        match (was_there, after) {
            (true, Some(stored)) => self.update.push(stored),
            (true, None) => self.delete.push(key),
            (false, Some(stored)) => self.insert.push(stored),
            (false, None) => self.absent.push(key),
        }
        Ok(())
    }
}
