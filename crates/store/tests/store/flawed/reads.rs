//! Stores with bugs in scans, journals and lists of runs.

use async_trait::async_trait;
use onward_journal::ExecutionId;
use onward_runs::RunId;
use onward_store::memory::MemoryStore;
use onward_store::{
    ColumnValue, Error, JournalChunk, RunEventReader, RunHead, Store as _, StoreLimits,
    StorePolicy, StoredRow, TableScan,
};

use super::StoreFlaw;

/// A scan ignores its upper bound.
pub(crate) struct IgnoresUpperBound;

#[async_trait]
impl StoreFlaw for IgnoresUpperBound {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        memory
            .scan_rows(TableScan {
                until: None,
                ..scan
            })
            .await
    }
}

/// A scan excludes the rows at its upper bound.
pub(crate) struct ExcludesUpperBound;

#[async_trait]
impl StoreFlaw for ExcludesUpperBound {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let (order, place) = (scan.table.scan_order(scan.index), scan.equal.len());
        let (table, until) = (scan.table, scan.until.clone());
        let mut rows = memory.scan_rows(scan).await?;
        rows.retain(|stored| {
            until.is_none() || table.select_values(&order, &stored.row).get(place) != until.as_ref()
        });
        Ok(rows)
    }
}

/// Every page is the first page.
pub(crate) struct IgnoresPagePosition;

#[async_trait]
impl StoreFlaw for IgnoresPagePosition {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        memory
            .scan_rows(TableScan {
                after: None,
                ..scan
            })
            .await
    }
}

/// A page continues after the index columns without the key, so rows with equal index columns are
/// lost.
pub(crate) struct PagesWithoutKey;

#[async_trait]
impl StoreFlaw for PagesWithoutKey {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let Some(index) = scan.index else {
            return memory.scan_rows(scan).await;
        };
        let (table, after) = (scan.table, scan.after.clone());
        let mut rows = memory.scan_rows(scan).await?;
        let is_beyond = |stored: &StoredRow, after: &[ColumnValue]| {
            table.select_values(index.columns, &stored.row).as_slice()
                > &after[..index.columns.len()]
        };
        rows.retain(|stored| after.as_ref().is_none_or(|after| is_beyond(stored, after)));
        Ok(rows)
    }
}

/// Text is ordered without regard to case.
pub(crate) struct OrdersCaseInsensitively;

#[async_trait]
impl StoreFlaw for OrdersCaseInsensitively {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let mut rows = memory.scan_rows(scan).await?;
        rows.sort_by_key(|stored| stored.row.0[0].to_string().to_lowercase());
        Ok(rows)
    }
}

/// The limit is truncated to 32 bits.
pub(crate) struct TruncatesLimits;

#[async_trait]
impl StoreFlaw for TruncatesLimits {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let limit = usize::try_from(u32::try_from(scan.limit).unwrap_or(0)).unwrap();
        memory.scan_rows(TableScan { limit, ..scan }).await
    }
}

/// Pages are not capped by the policy.
pub(crate) struct IgnoresPagePolicy;

impl StoreFlaw for IgnoresPagePolicy {
    fn policy(&self, policy: StorePolicy) -> StorePolicy {
        StorePolicy {
            limits: StoreLimits {
                page_max: usize::MAX,
                ..policy.limits
            },
            ..policy
        }
    }
}

/// The limits of commits are not enforced.
pub(crate) struct IgnoresCommitLimits;

impl StoreFlaw for IgnoresCommitLimits {
    fn policy(&self, policy: StorePolicy) -> StorePolicy {
        StorePolicy {
            limits: StoreLimits {
                page_max: policy.limits.page_max,
                ..StoreLimits::default()
            },
            ..policy
        }
    }
}

/// The chunk that contains the first requested event is omitted if it starts earlier.
pub(crate) struct SkipsPartialChunk;

#[async_trait]
impl StoreFlaw for SkipsPartialChunk {
    async fn journal(
        &self,
        memory: &MemoryStore,
        of: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        let chunks = memory.read_journal(of, from, limit).await?;
        Ok(chunks
            .into_iter()
            .filter(|chunk| chunk.first >= from)
            .collect())
    }
}

/// Every journal is read from its start.
pub(crate) struct IgnoresFirstSequence;

#[async_trait]
impl StoreFlaw for IgnoresFirstSequence {
    async fn journal(
        &self,
        memory: &MemoryStore,
        of: ExecutionId,
        _: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        memory.read_journal(of, 0, limit).await
    }
}

/// Every run is listed as behind.
pub(crate) struct ListsEveryRunAsBehind;

#[async_trait]
impl StoreFlaw for ListsEveryRunAsBehind {
    async fn runs(
        &self,
        memory: &MemoryStore,
        _: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        memory.list_run_heads(None, after, limit).await
    }
}

/// The limit applies before the filter: a page of finished runs hides later runs that are behind.
pub(crate) struct LimitsBeforeFiltering;

#[async_trait]
impl StoreFlaw for LimitsBeforeFiltering {
    async fn runs(
        &self,
        memory: &MemoryStore,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        let mut heads = memory.list_run_heads(None, after, limit).await?;
        heads.retain(|head| {
            behind.is_none_or(|reader| head.reader_position(reader) < head.last_seq)
        });
        Ok(heads)
    }
}

/// A list starts with the run that it should continue after.
pub(crate) struct RepeatsLastRun;

#[async_trait]
impl StoreFlaw for RepeatsLastRun {
    async fn runs(
        &self,
        memory: &MemoryStore,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        let mut heads = memory.list_run_heads(behind, None, usize::MAX).await?;
        heads.retain(|head| after.is_none_or(|after| head.run_id >= *after));
        heads.truncate(limit);
        Ok(heads)
    }
}

/// The position of the event bus is read from the projector.
pub(crate) struct ConfusesReaders;

#[async_trait]
impl StoreFlaw for ConfusesReaders {
    async fn run(&self, memory: &MemoryStore, run: &RunId) -> Result<Option<RunHead>, Error> {
        let head = memory.read_run_head(run).await?;
        Ok(head.map(|head| {
            head.clone()
                .with_reader_at(RunEventReader::EventBus, head.projected_seq)
        }))
    }
}
