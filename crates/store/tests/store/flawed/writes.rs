//! Stores that are wrong about commits, rows and retention.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_store::memory::MemoryStore;
use onward_store::tables::{ExecutionRow, InboxMessageRow, ShardLeaseRow};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, ColumnValue, Commit, CommitConflict, CommitReceipt, Error,
    InvalidRequest, PurgeTarget, RecordReader as _, RowChange, RowKey, Store as _, StoredRow,
    TableRecord as _, TableRow, TableScan, TableSchema,
};

use super::Flaw;

/// Nobody looks at the epoch.
pub(crate) struct IgnoresFences;

#[async_trait]
impl Flaw for IgnoresFences {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        commit.fences.clear();
        memory.commit(commit).await
    }
}

/// An epoch is only refused if it is too old.
pub(crate) struct LetsFutureEpochsPass;

#[async_trait]
impl Flaw for LetsFutureEpochsPass {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for fence in std::mem::take(&mut commit.fences) {
            let row: Option<(ShardLeaseRow, u64)> = memory
                .read_record(RowKey(vec![fence.shard.to_value()]))
                .await?;
            if row.is_none_or(|(lease, _)| lease.epoch > fence.epoch) {
                commit.fences.push(fence);
            }
        }
        memory.commit(commit).await
    }
}

/// A journal is appended to, however long it is.
pub(crate) struct IgnoresJournalLength;

#[async_trait]
impl Flaw for IgnoresJournalLength {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for append in &mut commit.journals {
            let chunks = memory.read_journal(append.execution, 0, usize::MAX).await?;
            append.expected_length = chunks
                .last()
                .map_or(0, |last| last.first + u64::from(last.count));
        }
        memory.commit(commit).await
    }
}

/// A row is changed, whatever its version.
pub(crate) struct IgnoresVersions;

#[async_trait]
impl Flaw for IgnoresVersions {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for change in &mut commit.changes {
            let (table, key) = (change.table(), change.key());
            if let RowChange::Update { version, .. }
            | RowChange::UpdateColumns { version, .. }
            | RowChange::Delete { version, .. } = change
                && let Some(stored) = memory.read_row(table, key).await?
            {
                *version = stored.version;
            }
        }
        memory.commit(commit).await
    }
}

/// An amendment writes the row as it was given, whole.
pub(crate) struct AmendsAllColumns;

#[async_trait]
impl Flaw for AmendsAllColumns {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        let changes = std::mem::take(&mut commit.changes);
        commit.changes = changes.into_iter().map(all_columns).collect();
        memory.commit(commit).await
    }
}

fn all_columns(change: RowChange) -> RowChange {
    match change {
        RowChange::UpdateColumns {
            table,
            row,
            version,
            ..
        } => RowChange::Update {
            table,
            row,
            version,
        },
        other => other,
    }
}

/// Makes the commit without those removals that `is_lost` picks, and says that they were made.
async fn losing(
    memory: &MemoryStore,
    mut commit: Commit,
    is_lost: impl Fn(&RowChange) -> bool,
) -> Result<CommitReceipt, Error> {
    let lost: Vec<bool> = commit
        .changes
        .iter()
        .map(|it| matches!(it, RowChange::DeleteIfExists { .. }) && is_lost(it))
        .collect();
    let mut places = lost.iter();
    commit.changes.retain(|_| places.next() == Some(&false));
    let mut receipt = memory.commit(commit).await?;
    let mut made = std::mem::take(&mut receipt.changes).into_iter();
    receipt.changes = lost
        .iter()
        .filter_map(|is_lost| {
            if *is_lost {
                Some(ChangeOutcome::Applied)
            } else {
                made.next()
            }
        })
        .collect();
    Ok(receipt)
}

/// A removal is said to be made, and is not.
pub(crate) struct OnlyPretendsToRemove;

#[async_trait]
impl Flaw for OnlyPretendsToRemove {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        losing(memory, commit, |_| true).await
    }
}

/// A row is removed only if nobody has changed it.
pub(crate) struct RemovesOnlyTheFirstVersion;

#[async_trait]
impl Flaw for RemovesOnlyTheFirstVersion {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let mut changed: Vec<(&str, RowKey)> = Vec::new();
        for change in &commit.changes {
            let stored = memory.read_row(change.table(), change.key()).await?;
            changed.extend(
                stored
                    .filter(|stored| stored.version > 1)
                    .map(|_| (change.table().name, change.key())),
            );
        }
        losing(memory, commit, |change| {
            changed.contains(&(change.table().name, change.key()))
        })
        .await
    }
}

/// A removal is lost where its commit changes other rows as well.
pub(crate) struct LosesRemovalsAmongOthers;

#[async_trait]
impl Flaw for LosesRemovalsAmongOthers {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let is_alone = commit.changes.len() == 1;
        losing(memory, commit, |_| !is_alone).await
    }
}

/// Removing what is absent is a conflict, as deleting it is.
pub(crate) struct RefusesToRemoveNothing;

#[async_trait]
impl Flaw for RefusesToRemoveNothing {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for change in &mut commit.changes {
            if let RowChange::DeleteIfExists { table, key } = change {
                let version = memory
                    .read_row(table, key.clone())
                    .await?
                    .map_or(1, |stored| stored.version);
                *change = RowChange::Delete {
                    table,
                    key: key.clone(),
                    version,
                };
            }
        }
        memory.commit(commit).await
    }
}

/// Part of a refused commit is stored all the same.
pub(crate) struct StoresPart(pub(crate) fn(Commit) -> Commit);

#[async_trait]
impl Flaw for StoresPart {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        if answer.is_err() {
            drop(memory.commit((self.0)(commit)).await);
        }
        answer
    }
}

/// Run events are stored first, and all else afterwards: two writes where there should be one.
pub(crate) struct WritesTwice;

#[async_trait]
impl Flaw for WritesTwice {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        let events = memory
            .commit(Commit::new().append_events(std::mem::take(&mut commit.events)))
            .await?
            .events;
        let changes = memory.commit(commit).await?.changes;
        Ok(CommitReceipt { changes, events })
    }
}

/// What must be unique is made to be, by leaving it out.
pub(crate) struct IgnoresUniqueColumns;

#[async_trait]
impl Flaw for IgnoresUniqueColumns {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        let Err(Error::Conflict(CommitConflict::NotUnique { .. })) = answer else {
            return answer;
        };
        for change in &mut commit.changes {
            let table = change.table();
            if let RowChange::Insert { row, .. } | RowChange::Update { row, .. } = change {
                leave_out_unique(table, row);
            }
        }
        memory.commit(commit).await
    }
}

/// Whether there is such a row already is judged by its key, and not by what else is unique.
pub(crate) struct KeepsByKeyOnly;

#[async_trait]
impl Flaw for KeepsByKeyOnly {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for change in &mut commit.changes {
            if let RowChange::InsertOrKeep { table, row } = change {
                leave_out_unique(table, row);
            }
        }
        memory.commit(commit).await
    }
}

fn leave_out_unique(table: &'static TableSchema, TableRow(values): &mut TableRow) {
    let columns = table
        .unique
        .iter()
        .copied()
        .flatten()
        .filter_map(|name| table.column_position(name));
    columns
        .filter(|place| table.columns[*place].nullable)
        .for_each(|place| values[place] = ColumnValue::Null);
}

/// What is there is overwritten, not kept.
pub(crate) struct OverwritesWhatShouldBeKept;

#[async_trait]
impl Flaw for OverwritesWhatShouldBeKept {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let receipt = memory.commit(commit.clone()).await?;
        for (change, outcome) in commit.changes.into_iter().zip(&receipt.changes) {
            if let (
                RowChange::InsertOrKeep { table, row },
                ChangeOutcome::Kept(StoredRow { version, .. }),
            ) = (change, outcome)
            {
                let mut update = Commit::new();
                update.changes.push(RowChange::Update {
                    table,
                    row,
                    version: *version,
                });
                drop(memory.commit(update).await);
            }
        }
        Ok(receipt)
    }
}

/// A number is given again once its row is gone: the largest there is, plus one.
#[derive(Default)]
pub(crate) struct ReusesSerials(Mutex<BTreeMap<ColumnValue, i64>>);

#[async_trait]
impl Flaw for ReusesSerials {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for change in &mut commit.changes {
            if let RowChange::Delete {
                table,
                key: RowKey(values),
                ..
            }
            | RowChange::DeleteIfExists {
                table,
                key: RowKey(values),
            } = change
                && table.name == InboxMessageRow::TABLE.name
            {
                let shown = self.0.lock().unwrap();
                let real = shown
                    .iter()
                    .find(|(_, shown)| ColumnValue::Int(**shown) == values[0]);
                values[0] = real.map_or(ColumnValue::Int(-1), |(real, _)| real.clone());
            }
        }
        let receipt = memory.commit(commit).await?;
        let rows = memory
            .scan_rows(TableScan::all_rows::<InboxMessageRow>())
            .await?;
        let mut shown = self.0.lock().unwrap();
        shown.retain(|real, _| rows.iter().any(|stored| stored.row.0[0] == *real));
        for stored in rows {
            let next = shown.values().max().copied().unwrap_or(0) + 1;
            shown.entry(stored.row.0[0].clone()).or_insert(next);
        }
        Ok(receipt)
    }

    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let is_inbox = scan.table.name == InboxMessageRow::TABLE.name;
        let mut rows = memory.scan_rows(scan).await?;
        for stored in rows.iter_mut().filter(|_| is_inbox) {
            stored.row.0[0] = ColumnValue::Int(self.0.lock().unwrap()[&stored.row.0[0]]);
        }
        Ok(rows)
    }
}

/// Nobody minds a reader that goes back.
pub(crate) struct LetsReadersGoBack;

#[async_trait]
impl Flaw for LetsReadersGoBack {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        commit.reader_advances.retain(|step| step.to >= step.from);
        memory.commit(commit).await
    }
}

/// A reader that is elsewhere than it believes is moved all the same.
pub(crate) struct IgnoresPositions;

#[async_trait]
impl Flaw for IgnoresPositions {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for step in &mut commit.reader_advances {
            let head = memory.read_run_head(&step.run).await?;
            step.from = head.map_or(step.from, |head| head.reader_position(step.reader));
        }
        memory.commit(commit).await
    }
}

/// A reader that would go beyond the end is moved to the end.
pub(crate) struct StopsReadersAtTheEnd;

#[async_trait]
impl Flaw for StopsReadersAtTheEnd {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        let Err(Error::Invalid(InvalidRequest::ReaderAdvance { last, .. })) = answer else {
            return answer;
        };
        commit
            .reader_advances
            .iter_mut()
            .for_each(|step| step.to = step.to.min(last));
        memory.commit(commit).await
    }
}

/// Values are changed on their way into a row.
async fn rewriting(
    memory: &MemoryStore,
    mut commit: Commit,
    change: impl Fn(&mut ColumnValue),
) -> Result<CommitReceipt, Error> {
    for it in &mut commit.changes {
        if let RowChange::Insert { row, .. }
        | RowChange::InsertOrKeep { row, .. }
        | RowChange::Update { row, .. }
        | RowChange::UpdateColumns { row, .. } = it
        {
            row.0.iter_mut().for_each(&change);
        }
    }
    memory.commit(commit).await
}

/// Instants in rows are cut off at the millisecond.
pub(crate) struct CutsInstants;

#[async_trait]
impl Flaw for CutsInstants {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let cut = |at: Timestamp| {
            Timestamp::from_micros(at.as_micros().div_euclid(1_000) * 1_000).unwrap_or(at)
        };
        rewriting(memory, commit, |value| {
            if let ColumnValue::Time(at) = value {
                *at = cut(*at);
            }
        })
        .await
    }
}

/// Text is stored without the blanks at its end.
pub(crate) struct TrimsText;

#[async_trait]
impl Flaw for TrimsText {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |value| {
            if let ColumnValue::Text(text) = value {
                *text = text.trim_end_matches(' ').into();
            }
        })
        .await
    }
}

/// Deleting the row of an execution takes its journal along.
pub(crate) struct DeletesInCascade;

#[async_trait]
impl Flaw for DeletesInCascade {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let receipt = memory.commit(commit.clone()).await?;
        for change in commit.changes {
            if let RowChange::Delete { table, key, .. } | RowChange::DeleteIfExists { table, key } =
                change
                && table.name == ExecutionRow::TABLE.name
                && let Some(execution) = onward_journal::ExecutionId::from_value(&key.0[0])
            {
                memory.purge(PurgeTarget::Execution(execution)).await?;
            }
        }
        Ok(receipt)
    }
}

/// Retention says yes and does nothing.
pub(crate) struct OnlyPretendsToPurge;

#[async_trait]
impl Flaw for OnlyPretendsToPurge {
    async fn purge(&self, _: &MemoryStore, _: PurgeTarget) -> Result<bool, Error> {
        Ok(true)
    }
}

/// Retention takes every run along whose name begins with that of the run.
pub(crate) struct PurgesByPrefix;

#[async_trait]
impl Flaw for PurgesByPrefix {
    async fn purge(&self, memory: &MemoryStore, purge: PurgeTarget) -> Result<bool, Error> {
        let PurgeTarget::Run(run) = purge else {
            return memory.purge(purge).await;
        };
        for head in memory.list_run_heads(None, None, usize::MAX).await? {
            if head.run_id.starts_with(&*run) && head.run_id != run {
                memory.purge(PurgeTarget::Run(head.run_id)).await?;
            }
        }
        memory.purge(PurgeTarget::Run(run)).await
    }
}

/// Retention removes an execution's row and forgets what belongs to it.
pub(crate) struct PurgesOnlyTheRow;

#[async_trait]
impl Flaw for PurgesOnlyTheRow {
    async fn purge(&self, memory: &MemoryStore, purge: PurgeTarget) -> Result<bool, Error> {
        let PurgeTarget::Execution(execution) = purge else {
            return memory.purge(purge).await;
        };
        let row: Option<(ExecutionRow, u64)> = memory
            .read_record(RowKey(vec![execution.to_value()]))
            .await?;
        let Some((row, version)) = row else {
            return Ok(false);
        };
        memory
            .commit(Commit::new().delete(&row, version))
            .await
            .map(|_| true)
    }
}
