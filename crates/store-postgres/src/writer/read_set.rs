//! The read set of a group of commits: everything that the store's rules may need, each item once
//! and in the order in which it is locked.
//!
//! With [`Duplicates::Optimistic`], rows and events to insert are assumed to be new. They nearly
//! always are, and not reading them saves half of the statements. If one is not new, the database's
//! unique keys reject it, and the group is performed again with the complete read set.

use std::collections::{BTreeMap, BTreeSet};

use onward_journal::ExecutionId;
use onward_runs::{RunEventWrite, RunId};
use onward_store::tables::{ExecutionRow, ShardLeaseRow};
use onward_store::{
    AdmittedCommit, ColumnCodec as _, ColumnValue, Commit, Duplicates, RowChange, RowKey,
    ShardEpoch, TableRecord as _, TableSchema,
};

/// Rows identified by table name and key.
type RowKeys = BTreeSet<(&'static str, RowKey)>;

/// Everything that must be locked and read for a group of commits.
pub(super) struct ReadSet<'a> {
    /// Whether rows and events to insert are read first or assumed to be new.
    pub(super) duplicates: Duplicates,
    /// Rows to read, by table name.
    pub(super) tables: BTreeMap<&'static str, TableReads>,
    /// Shards whose owner must not change; shards that the group itself changes are among the rows
    /// instead.
    pub(super) fences: BTreeSet<RowKey>,
    /// `true` if a shard must stay without an owner; there is no row to lock for it.
    pub(super) requires_unowned_shard: bool,
    /// Executions to whose journals the group appends.
    pub(super) executions: BTreeSet<ExecutionId>,
    /// The subset of `executions` whose rows the appending commit does not lock, so that a purge
    /// would not wait for it.
    pub(super) unlocked_executions: BTreeSet<ExecutionId>,
    /// Runs to append events to, or whose readers advance.
    pub(super) runs: BTreeSet<&'a RunId>,
    /// Events that may be stored already.
    pub(super) events: Vec<&'a RunEventWrite>,
    /// Rows that several commits of the group change. The result of the later commits depends on
    /// the earlier ones.
    shared_rows: RowKeys,
}

/// The rows of one table to read.
pub(super) struct TableReads {
    pub(super) table: &'static TableSchema,
    /// Rows to read by key.
    pub(super) keys: BTreeSet<RowKey>,
    /// Rows to read by unique columns: the position of the unique set, and the values.
    pub(super) unique: BTreeMap<usize, BTreeSet<Vec<ColumnValue>>>,
    /// Number of rows that may need a serial number.
    pub(super) serials: i64,
}

impl<'a> ReadSet<'a> {
    /// Collects the read set of these commits.
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
        // A shared lock is never upgraded to an exclusive one, because that can deadlock two
        // transactions.
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
        if self.is_unread_column_update(change) {
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

    /// Returns `true` if the row of a column update is not read: the update is conditional on the
    /// row's version, and no other commit of the group changes the row. Shard leases are always
    /// read, because fences depend on them.
    pub(super) fn is_unread_column_update(&self, change: &RowChange) -> bool {
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

/// Returns the rows that several commits change; empty if no row is updated by columns without
/// being read.
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
        // A row without a serial number is new and cannot be shared.
        if key.0[0] != ColumnValue::Null && !seen.insert((table.name, key)) {
            shared.insert((table.name, change.key()));
        }
    }
    shared
}

/// Returns `true` if the commit updates, and so locks, the row of the execution.
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
