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

/// Rows by their tables and keys.
type Places = BTreeSet<(&'static str, Key)>;

/// What a group of commits is about.
pub(super) struct Wish<'a> {
    /// Whether to look for what is taken for granted.
    pub(super) care: Care,
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
    /// Rows that several commits of the group are about. What the later ones find depends on the earlier ones.
    shared: Places,
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
        let mut wish = Self::none(care);
        wish.shared = shared(commits, care);
        for commit in commits.iter().map(|commit| commit.commit()) {
            commit.changes.iter().for_each(|change| wish.add(change));
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

    const fn none(care: Care) -> Self {
        Self {
            care,
            tables: BTreeMap::new(),
            fences: BTreeSet::new(),
            has_no_owner: false,
            executions: BTreeSet::new(),
            unheld: BTreeSet::new(),
            runs: BTreeSet::new(),
            events: Vec::new(),
            shared: Places::new(),
        }
    }

    fn add(&mut self, change: &Change) {
        if self.is_amended_unseen(change) {
            return;
        }
        let (table, care) = (change.table(), self.care);
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

    /// Whether the row of an amendment is not looked at: it is changed only if it is at the version that it should be at, and
    /// no other commit of the group is about it. The lease of a shard is looked at, because fences depend on it.
    pub(super) fn is_amended_unseen(&self, change: &Change) -> bool {
        let Change::Amend { table, row, .. } = change else { return false };
        let is_shared = || !self.shared.is_empty() && self.shared.contains(&(table.name, table.key_of(row)));
        self.care == Care::Trust && table.name != ShardLease::TABLE.name && !is_shared()
    }
}

/// The rows that several commits are about, if some of them might be amended unseen.
fn shared(commits: &[&Admitted], care: Care) -> Places {
    let changes = || commits.iter().flat_map(|commit| &commit.commit().changes);
    if care == Care::Look || commits.len() < 2 || !changes().any(|change| matches!(change, Change::Amend { .. })) {
        return Places::new();
    }
    let (mut seen, mut shared) = (Places::new(), Places::new());
    for change in changes() {
        let (table, key) = (change.table(), change.key());
        // One that has no number yet is nobody else's.
        if key.0[0] != Value::Null && !seen.insert((table.name, key)) {
            shared.insert((table.name, change.key()));
        }
    }
    shared
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
