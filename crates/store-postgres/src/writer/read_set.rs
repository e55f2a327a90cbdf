//! What a group of commits is about: everything that the rules may ask for, each once and in the order in which it is
//! locked.
//!
//! With [`Care::Trust`], what is to be inserted is taken for new. Nearly always it is, and not looking saves half of
//! the statements. Where it is not, the keys of the database object, and the group is looked at whole.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::ExecutionId;
use onward_runs::{RunEventWrite, RunId};
use onward_store::tables::{ExecutionRow, ShardLeaseRow};
use onward_store::{
    AdmittedCommit, ColumnCodec as _, ColumnValue, Commit, Duplicates, RowChange, RowKey,
    ShardEpoch, TableRecord as _, TableSchema,
};

/// Rows by their tables and keys.
type RowKeys = BTreeSet<(&'static str, RowKey)>;

/// What a group of commits is about.
pub(super) struct ReadSet<'a> {
    /// Whether to look for what is taken for granted.
    pub(super) duplicates: Duplicates,
    /// Tables by name, and their rows.
    pub(super) tables: BTreeMap<&'static str, TableReads>,
    /// Shards that must not change hands; those that are changed by the group are among the rows.
    pub(super) fences: BTreeSet<RowKey>,
    /// Whether a shard must stay without an owner, of which there is no row to lock.
    pub(super) requires_unowned_shard: bool,
    /// Executions with journals to append to.
    pub(super) executions: BTreeSet<ExecutionId>,
    /// Those of them whose rows are not locked by the commit that appends, so that a purge would not wait for it.
    pub(super) unlocked_executions: BTreeSet<ExecutionId>,
    /// Runs with events to append, or readers to move.
    pub(super) runs: BTreeSet<&'a RunId>,
    /// Events that may be there already.
    pub(super) events: Vec<&'a RunEventWrite>,
    /// Rows that several commits of the group are about. What the later ones find depends on the earlier ones.
    shared_rows: RowKeys,
}

/// Rows of a table.
pub(super) struct TableReads {
    pub(super) table: &'static TableSchema,
    /// By key.
    pub(super) keys: BTreeSet<RowKey>,
    /// By the values of columns that are unique together, by the place of that set.
    pub(super) unique: BTreeMap<usize, BTreeSet<Vec<ColumnValue>>>,
    /// How many rows may have to be numbered.
    pub(super) serials: i64,
}

impl<'a> ReadSet<'a> {
    /// What these commits are about.
    pub(super) fn from_commits(commits: &[&'a AdmittedCommit], care: Duplicates) -> Self {
        let mut wish = Self::new_empty(care);
        wish.shared_rows = shared_row_keys(commits, care);
        for commit in commits.iter().map(|commit| commit.commit()) {
            commit
                .changes
                .iter()
                .for_each(|change| wish.add_change(change));
            wish.requires_unowned_shard |= commit
                .fences
                .iter()
                .any(|fence| fence.epoch == ShardEpoch::NONE);
            wish.fences.extend(
                commit
                    .fences
                    .iter()
                    .map(|fence| RowKey(vec![fence.shard.to_value()])),
            );
            let executions = commit.journals.iter().map(|append| append.execution);
            wish.executions.extend(executions.clone());
            wish.unlocked_executions
                .extend(executions.filter(|execution| !updates_execution(commit, *execution)));
            wish.runs
                .extend(commit.reader_advances.iter().map(|step| &step.run));
            wish.runs
                .extend(commit.events.iter().map(|event| &event.run_id));
            if care == Duplicates::Checked {
                wish.events.extend(&commit.events);
            }
        }
        // A lock is never made stronger: that is how two transactions come to wait for each other.
        if let Some(leases) = wish.tables.get(ShardLeaseRow::TABLE.name) {
            wish.fences.retain(|shard| !leases.keys.contains(shard));
        }
        wish
    }

    const fn new_empty(care: Duplicates) -> Self {
        Self {
            duplicates: care,
            tables: BTreeMap::new(),
            fences: BTreeSet::new(),
            requires_unowned_shard: false,
            executions: BTreeSet::new(),
            unlocked_executions: BTreeSet::new(),
            runs: BTreeSet::new(),
            events: Vec::new(),
            shared_rows: RowKeys::new(),
        }
    }

    fn add_change(&mut self, change: &RowChange) {
        if self.is_unread_amendment(change) {
            return;
        }
        let (table, care) = (change.table(), self.duplicates);
        let rows = self
            .tables
            .entry(table.name)
            .or_insert_with(|| TableReads::for_table(table));
        let is_insert = matches!(change, RowChange::Insert { .. });
        if table.has_serial_key() && (is_insert || matches!(change, RowChange::InsertOrKeep { .. }))
        {
            rows.serials += 1;
        } else if care == Duplicates::Checked || !is_insert {
            rows.keys.insert(change.key());
        }
        if care == Duplicates::Optimistic && !matches!(change, RowChange::InsertOrKeep { .. }) {
            return;
        }
        for (place, values) in change
            .row()
            .map(|row| table.unique_values(row))
            .unwrap_or_default()
        {
            rows.unique.entry(place).or_default().insert(values);
        }
    }

    /// Whether the row of an amendment is not looked at: it is changed only if it is at the version that it should be at, and
    /// no other commit of the group is about it. The lease of a shard is looked at, because fences depend on it.
    pub(super) fn is_unread_amendment(&self, change: &RowChange) -> bool {
        let RowChange::UpdateColumns { table, row, .. } = change else {
            return false;
        };
        let is_shared = || {
            !self.shared_rows.is_empty()
                && self.shared_rows.contains(&(table.name, table.key_of(row)))
        };
        self.duplicates == Duplicates::Optimistic
            && table.name != ShardLeaseRow::TABLE.name
            && !is_shared()
    }
}

/// The rows that several commits are about, if some of them might be amended unseen.
fn shared_row_keys(commits: &[&AdmittedCommit], care: Duplicates) -> RowKeys {
    let changes = || commits.iter().flat_map(|commit| &commit.commit().changes);
    if care == Duplicates::Checked
        || commits.len() < 2
        || !changes().any(|change| matches!(change, RowChange::UpdateColumns { .. }))
    {
        return RowKeys::new();
    }
    let (mut seen, mut shared) = (RowKeys::new(), RowKeys::new());
    for change in changes() {
        let (table, key) = (change.table(), change.key());
        // One that has no number yet is nobody else's.
        if key.0[0] != ColumnValue::Null && !seen.insert((table.name, key)) {
            shared.insert((table.name, change.key()));
        }
    }
    shared
}

/// Whether the commit updates, and so locks, the row of an execution.
fn updates_execution(commit: &Commit, execution: ExecutionId) -> bool {
    let key = RowKey(vec![execution.to_value()]);
    let is_update = |change: &RowChange| {
        matches!(change, RowChange::Update { table, .. } if table.name == ExecutionRow::TABLE.name)
            && change.key() == key
    };
    commit.changes.iter().any(is_update)
}

impl TableReads {
    const fn for_table(table: &'static TableSchema) -> Self {
        Self {
            table,
            keys: BTreeSet::new(),
            unique: BTreeMap::new(),
            serials: 0,
        }
    }
}
