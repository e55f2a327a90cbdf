//! Stores with bugs in commits, rows and retention.

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

use super::StoreFlaw;

/// The epoch is not checked.
pub(crate) struct IgnoresFences;

#[async_trait]
impl StoreFlaw for IgnoresFences {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        commit.fences.clear();
        memory.commit(commit).await
    }
}

/// An epoch is only rejected if it is too old.
pub(crate) struct AcceptsFutureEpochs;

#[async_trait]
impl StoreFlaw for AcceptsFutureEpochs {
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

/// An append is accepted regardless of the length of the journal.
pub(crate) struct IgnoresJournalLength;

#[async_trait]
impl StoreFlaw for IgnoresJournalLength {
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

/// A row is changed regardless of its version.
pub(crate) struct IgnoresVersions;

#[async_trait]
impl StoreFlaw for IgnoresVersions {
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

/// A column update writes all columns of the row.
pub(crate) struct UpdatesAllColumns;

#[async_trait]
impl StoreFlaw for UpdatesAllColumns {
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

/// Applies the commit without the deletes that `is_lost` selects, and reports them as applied.
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

/// A delete-if-exists is reported as applied, but is not.
pub(crate) struct SkipsDeleteIfExists;

#[async_trait]
impl StoreFlaw for SkipsDeleteIfExists {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        losing(memory, commit, |_| true).await
    }
}

/// A delete-if-exists deletes only rows that were never updated.
pub(crate) struct DeletesOnlyFirstVersion;

#[async_trait]
impl StoreFlaw for DeletesOnlyFirstVersion {
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

/// A delete-if-exists is lost if its commit changes other rows as well.
pub(crate) struct LosesDeletesAmongOtherChanges;

#[async_trait]
impl StoreFlaw for LosesDeletesAmongOtherChanges {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let is_alone = commit.changes.len() == 1;
        losing(memory, commit, |_| !is_alone).await
    }
}

/// A delete-if-exists of a missing row is a conflict.
pub(crate) struct RejectsDeleteOfMissingRow;

#[async_trait]
impl StoreFlaw for RejectsDeleteOfMissingRow {
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

/// Part of a rejected commit is stored.
pub(crate) struct StoresPartOfCommit(pub(crate) fn(Commit) -> Commit);

#[async_trait]
impl StoreFlaw for StoresPartOfCommit {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        if answer.is_err() {
            drop(memory.commit((self.0)(commit)).await);
        }
        answer
    }
}

/// Run events are stored first and the rest afterwards, in a second transaction.
pub(crate) struct StoresInTwoTransactions;

#[async_trait]
impl StoreFlaw for StoresInTwoTransactions {
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

/// Rows with duplicate unique values are silently dropped.
pub(crate) struct IgnoresUniqueColumns;

#[async_trait]
impl StoreFlaw for IgnoresUniqueColumns {
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

/// An existing row is found only by its key, and not by its unique values.
pub(crate) struct KeepsByKeyOnly;

#[async_trait]
impl StoreFlaw for KeepsByKeyOnly {
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

/// An existing row is overwritten instead of kept.
pub(crate) struct OverwritesInsertOrKeep;

#[async_trait]
impl StoreFlaw for OverwritesInsertOrKeep {
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

/// A serial is reused after its row is deleted: it is the largest stored serial plus one.
#[derive(Default)]
pub(crate) struct ReusesSerials(Mutex<BTreeMap<ColumnValue, i64>>);

#[async_trait]
impl StoreFlaw for ReusesSerials {
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

/// A reader may move backwards.
pub(crate) struct AcceptsReadersMovingBack;

#[async_trait]
impl StoreFlaw for AcceptsReadersMovingBack {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        commit.reader_advances.retain(|step| step.to >= step.from);
        memory.commit(commit).await
    }
}

/// A reader is moved regardless of its current position.
pub(crate) struct IgnoresReaderPositions;

#[async_trait]
impl StoreFlaw for IgnoresReaderPositions {
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

/// A reader that would move beyond the end is moved to the end.
pub(crate) struct ClampsReadersToEnd;

#[async_trait]
impl StoreFlaw for ClampsReadersToEnd {
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

/// Changes values before they are stored in a row.
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

/// Timestamps in rows are truncated to milliseconds.
pub(crate) struct TruncatesTimestamps;

#[async_trait]
impl StoreFlaw for TruncatesTimestamps {
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

/// Text is stored without trailing blanks.
pub(crate) struct TrimsText;

#[async_trait]
impl StoreFlaw for TrimsText {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |value| {
            if let ColumnValue::Text(text) = value {
                *text = text.trim_end_matches(' ').into();
            }
        })
        .await
    }
}

/// Deleting the row of an execution deletes its journal.
pub(crate) struct DeletesInCascade;

#[async_trait]
impl StoreFlaw for DeletesInCascade {
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

/// A purge reports success and deletes nothing.
pub(crate) struct SkipsPurge;

#[async_trait]
impl StoreFlaw for SkipsPurge {
    async fn purge(&self, _: &MemoryStore, _: PurgeTarget) -> Result<bool, Error> {
        Ok(true)
    }
}

/// A purge deletes every run whose id starts with that of the run.
pub(crate) struct PurgesByPrefix;

#[async_trait]
impl StoreFlaw for PurgesByPrefix {
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

/// A purge deletes the row of an execution and keeps its other data.
pub(crate) struct PurgesOnlyRow;

#[async_trait]
impl StoreFlaw for PurgesOnlyRow {
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
