//! Runs operations on one store and returns the answers as comparable values.

use std::sync::Arc;

use onward_base::Timestamp;
use onward_runs::{RunEventRecord, RunSnapshot};

use super::serial_normalizer::SerialNormalizer;
use super::{DIFFERENTIAL_POLICY, StoreOperation};
use crate::conformance::{OpenedStore, StoreDump, StoreFactory, fixtures, store_dump};
use crate::shard_lease::{self, HeldLease};
use crate::{
    ChangeOutcome, ColumnValue, Commit, CommitConflict, CommitReceipt, Error, JournalChunk,
    ManualClock, RowChange, RunHead, RunStateStore as _, Store, StoredRow, TableScan, TableSchema,
    tables,
};

/// The answer of a store to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the answer to the operation of that name"
)]
pub enum StoreAnswer {
    Receipt(CommitReceipt),
    Row(Option<StoredRow>),
    Rows(Vec<StoredRow>),
    Chunks(Vec<JournalChunk>),
    Events(Vec<RunEventRecord>),
    Head(Option<RunHead>),
    Heads(Vec<RunHead>),
    Snapshot(Option<Box<RunSnapshot>>),
    Purged(bool),
    Lease(Option<HeldLease>),
    Time(Timestamp),
    Done,
    Error(Error),
}

/// A store under test with the state that a sequence of operations needs: its clock, granted leases
/// and serial numbers.
pub struct OperationPlayer {
    opened: Box<dyn OpenedStore>,
    clock: Arc<ManualClock>,
    leases: Vec<HeldLease>,
    serials: SerialNormalizer,
}

impl OperationPlayer {
    /// Opens an empty store of this implementation.
    pub async fn open(subject: &dyn StoreFactory) -> Result<Self, Error> {
        let clock = Arc::new(ManualClock::new(fixtures::timestamp_after_ms(0)));
        let opened = subject
            .open_empty(DIFFERENTIAL_POLICY, Arc::clone(&clock))
            .await?;
        Ok(Self {
            opened,
            clock,
            leases: Vec::new(),
            serials: SerialNormalizer::default(),
        })
    }

    /// Runs `operation` and returns the answer of the store.
    pub async fn play_operation(&mut self, operation: &StoreOperation) -> StoreAnswer {
        self.perform_operation(operation)
            .await
            .unwrap_or_else(|error| StoreAnswer::Error(self.normalize_error(error)))
    }

    /// Returns the number of leases granted so far.
    pub(super) const fn granted_leases(&self) -> usize {
        self.leases.len()
    }

    /// Returns all rows of a table.
    pub(super) async fn read_rows(&self, table: &'static TableSchema) -> Vec<StoredRow> {
        let rows = store_dump::read_all_rows(self.store(), table)
            .await
            .unwrap_or_default();
        rows.into_iter()
            .map(|stored| self.normalize_row(table, stored))
            .collect()
    }

    /// Returns everything that the store holds.
    pub(super) async fn dump_store(&self) -> Result<StoreDump, Error> {
        let mut dump = StoreDump::read_all(self.store()).await?;
        for table in tables::ALL_TABLES {
            let rows = dump.rows.get_mut(table.name).into_iter().flatten();
            rows.for_each(|stored| self.serials.normalize_stored_row(table, stored));
        }
        Ok(dump)
    }

    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.opened.store()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one scenario, or one list of cases, read from top to bottom"
    )]
    async fn perform_operation(
        &mut self,
        operation: &StoreOperation,
    ) -> Result<StoreAnswer, Error> {
        match operation.clone() {
            StoreOperation::Commit(commit) => self
                .commit_normalized(commit)
                .await
                .map(StoreAnswer::Receipt),
            StoreOperation::Row(table, mut key) => {
                self.serials.denormalize_key(table, &mut key);
                let found = self.store().read_row(table, key).await?;
                Ok(StoreAnswer::Row(
                    found.map(|stored| self.normalize_row(table, stored)),
                ))
            }
            StoreOperation::Rows(mut scan) => {
                self.serials.denormalize_scan(&mut scan);
                let table = scan.table;
                let found = self.store().scan_rows(scan).await?;
                Ok(StoreAnswer::Rows(
                    found
                        .into_iter()
                        .map(|stored| self.normalize_row(table, stored))
                        .collect(),
                ))
            }
            StoreOperation::Pages(scan) => self.read_pages(scan).await.map(StoreAnswer::Rows),
            StoreOperation::Journal {
                execution,
                from,
                limit,
            } => self
                .store()
                .read_journal(execution, from, limit)
                .await
                .map(StoreAnswer::Chunks),
            StoreOperation::RunEvents(run, page) => self
                .store()
                .read_run_events(&run, page)
                .await
                .map(StoreAnswer::Events),
            StoreOperation::Run(run) => self
                .store()
                .read_run_head(&run)
                .await
                .map(StoreAnswer::Head),
            StoreOperation::Runs {
                behind,
                after,
                limit,
            } => self
                .store()
                .list_run_heads(behind, after.as_ref(), limit)
                .await
                .map(StoreAnswer::Heads),
            StoreOperation::Snapshot(run) => self
                .store()
                .get_snapshot(&run)
                .await
                .map(|found| StoreAnswer::Snapshot(found.map(Box::new))),
            StoreOperation::Project(run) => self
                .store()
                .project_snapshot(&run)
                .await
                .map(|found| StoreAnswer::Snapshot(Some(Box::new(found)))),
            StoreOperation::Purge(purge) => {
                self.store().purge(purge).await.map(StoreAnswer::Purged)
            }
            StoreOperation::Now => self.store().now().await.map(StoreAnswer::Time),
            StoreOperation::SetClock(at) => {
                self.clock.set(at);
                Ok(StoreAnswer::Done)
            }
            leasing => self.perform_lease_operation(&leasing).await,
        }
    }

    /// Returns all pages of a scan, up to a maximum, so that a store that repeats a page does not
    /// cause an endless loop.
    async fn read_pages(&self, mut scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        const PAGES_MAX: usize = 50;
        self.serials.denormalize_scan(&mut scan);
        let (table, order) = (scan.table, scan.table.scan_order(scan.index));
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.store().scan_rows(scan.clone()).await?;
            let Some(last) = page.last() else { break };
            scan.after = Some(table.select_values(&order, &last.row));
            all.extend(
                page.into_iter()
                    .map(|stored| self.normalize_row(table, stored)),
            );
        }
        Ok(all)
    }

    async fn perform_lease_operation(
        &mut self,
        operation: &StoreOperation,
    ) -> Result<StoreAnswer, Error> {
        let store = self.opened.store();
        let granted = match *operation {
            StoreOperation::Claim {
                shard,
                node,
                lease_ms,
            } => shard_lease::claim_shard(store, shard, node, lease_ms).await?,
            StoreOperation::Renew { nth, lease_ms } => match self.leases.get(nth) {
                Some(lease) => shard_lease::renew_lease(store, lease, lease_ms).await?,
                None => None,
            },
            StoreOperation::Release { nth } => {
                if let Some(lease) = self.leases.get(nth) {
                    shard_lease::release_lease(store, lease).await?;
                }
                return Ok(StoreAnswer::Done);
            }
            _ => None,
        };
        self.leases.extend(granted.clone());
        Ok(StoreAnswer::Lease(granted))
    }

    async fn commit_normalized(&mut self, mut commit: Commit) -> Result<CommitReceipt, Error> {
        let tables: Vec<&'static TableSchema> =
            commit.changes.iter().map(RowChange::table).collect();
        commit
            .changes
            .iter_mut()
            .for_each(|change| self.denormalize_change(change));
        let mut receipt = self.store().commit(commit).await?;
        for table in tables::ALL_TABLES
            .into_iter()
            .filter(|table| table.has_serial_key() && contains_table(&tables, table))
        {
            self.learn_serials(table).await?;
        }
        for (outcome, table) in receipt.changes.iter_mut().zip(tables) {
            if let ChangeOutcome::Kept(stored) = outcome {
                self.serials.normalize_stored_row(table, stored);
            }
        }
        Ok(receipt)
    }

    /// Converts the ordinals in a change to the serial numbers of the store.
    fn denormalize_change(&self, change: &mut RowChange) {
        match change {
            RowChange::Update { table, row, .. } | RowChange::UpdateColumns { table, row, .. } => {
                self.serials.denormalize_row(table, row);
            }
            RowChange::Delete { table, key, .. } | RowChange::DeleteIfExists { table, key } => {
                self.serials.denormalize_key(table, key)
            }
            RowChange::Insert { .. } | RowChange::InsertOrKeep { .. } => {}
        }
    }

    /// Reads the serial numbers that the store has assigned since the last call.
    async fn learn_serials(&mut self, table: &'static TableSchema) -> Result<(), Error> {
        loop {
            let after = Some(vec![ColumnValue::Int(self.serials.last_serial(table))]);
            let scan = TableScan {
                after,
                limit: usize::MAX,
                ..TableScan::over_table(table, None)
            };
            let rows = self.store().scan_rows(scan).await?;
            let before = self.serials.last_serial(table);
            self.serials.record_serials(table, &rows);
            if self.serials.last_serial(table) <= before {
                return Ok(());
            }
        }
    }

    fn normalize_row(&self, table: &'static TableSchema, mut stored: StoredRow) -> StoredRow {
        self.serials.normalize_stored_row(table, &mut stored);
        stored
    }

    fn normalize_error(&self, mut error: Error) -> Error {
        if let Error::Conflict(
            CommitConflict::RowVersion {
                table: name, key, ..
            }
            | CommitConflict::RowExists { table: name, key }
            | CommitConflict::NotUnique {
                table: name, key, ..
            },
        ) = &mut error
            && let Some(table) = tables::ALL_TABLES
                .into_iter()
                .find(|table| table.name == *name)
        {
            self.serials.normalize_key(table, key);
        }
        error
    }
}

fn contains_table(touched: &[&'static TableSchema], table: &'static TableSchema) -> bool {
    touched.iter().any(|it| it.name == table.name)
}
