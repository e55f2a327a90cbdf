//! What a group of commits is about: everything that the rules may ask for, each once and in the order in which it is
//! locked.
//!
//! With [`Care::Trust`], what is to be inserted is taken for new. Nearly always it is, and not looking saves half of
//! the statements. Where it is not, the keys of the database object, and the group is looked at whole.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::ExecutionId;
use onward_runs::{RunEventWrite, RunId};
use onward_store::tables::{Execution, ShardLease};
use onward_store::{Admitted, Care, Change, Commit, Epoch, Field as _, Key, Record as _, Table, Value};

/// What a group of commits is about.
#[derive(Default)]
pub(super) struct Wish<'a> {
    /// Tables by name, and their rows.
    pub(super) tables: BTreeMap<&'static str, Rows>,
    /// Shards that must not change hands; those that are changed by the group are among the rows.
    pub(super) fences: BTreeSet<Key>,
    /// Whether a shard must stay without an owner, of which there is no row to lock.
    pub(super) has_no_owner: bool,
    /// Executions with journals to append to.
    pub(super) executions: BTreeSet<ExecutionId>,
    /// Those of them whose rows are not locked by the commit that appends, so that a purge would not wait for it.
    pub(super) unheld: BTreeSet<ExecutionId>,
    /// Runs with events to append, or readers to move.
    pub(super) runs: BTreeSet<&'a RunId>,
    /// Events that may be there already.
    pub(super) events: Vec<&'a RunEventWrite>,
}

/// Rows of a table.
pub(super) struct Rows {
    pub(super) table: &'static Table,
    /// By key.
    pub(super) keys: BTreeSet<Key>,
    /// By the values of columns that are unique together, by the place of that set.
    pub(super) unique: BTreeMap<usize, BTreeSet<Vec<Value>>>,
    /// How many rows may have to be numbered.
    pub(super) serials: i64,
}

impl<'a> Wish<'a> {
    /// What these commits are about.
    pub(super) fn of(commits: &[&'a Admitted], care: Care) -> Self {
        let mut wish = Self::default();
        for commit in commits.iter().map(|commit| commit.commit()) {
            commit.changes.iter().for_each(|change| wish.add(change, care));
            wish.has_no_owner |= commit.fences.iter().any(|fence| fence.epoch == Epoch::NONE);
            wish.fences.extend(commit.fences.iter().map(|fence| Key(vec![fence.shard.to_value()])));
            let executions = commit.journals.iter().map(|append| append.execution);
            wish.executions.extend(executions.clone());
            wish.unheld.extend(executions.filter(|execution| !updates(commit, *execution)));
            wish.runs.extend(commit.moves.iter().map(|step| &step.run));
            wish.runs.extend(commit.events.iter().map(|event| &event.run_id));
            if care == Care::Look {
                wish.events.extend(&commit.events);
            }
        }
        // A lock is never made stronger: that is how two transactions come to wait for each other.
        if let Some(leases) = wish.tables.get(ShardLease::TABLE.name) {
            wish.fences.retain(|shard| !leases.keys.contains(shard));
        }
        wish
    }

    fn add(&mut self, change: &Change, care: Care) {
        let table = change.table();
        let rows = self.tables.entry(table.name).or_insert_with(|| Rows::none(table));
        let is_insert = matches!(change, Change::Insert { .. });
        if table.is_serial() && (is_insert || matches!(change, Change::InsertOrKeep { .. })) {
            rows.serials += 1;
        } else if care == Care::Look || !is_insert {
            rows.keys.insert(change.key());
        }
        if care == Care::Trust && !matches!(change, Change::InsertOrKeep { .. }) {
            return;
        }
        for (place, values) in change.row().map(|row| table.unique_values(row)).unwrap_or_default() {
            rows.unique.entry(place).or_default().insert(values);
        }
    }
}

/// Whether the commit updates, and so locks, the row of an execution.
fn updates(commit: &Commit, execution: ExecutionId) -> bool {
    let key = Key(vec![execution.to_value()]);
    let is_update = |change: &Change| {
        matches!(change, Change::Update { table, .. } if table.name == Execution::TABLE.name) && change.key() == key
    };
    commit.changes.iter().any(is_update)
}

impl Rows {
    const fn none(table: &'static Table) -> Self {
        Self { table, keys: BTreeSet::new(), unique: BTreeMap::new(), serials: 0 }
    }
}
