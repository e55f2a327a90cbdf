//! Stores that are wrong about scans, journals and lists of runs.

use async_trait::async_trait;
use onward_journal::ExecutionId;
use onward_runs::RunId;
use onward_store::memory::MemoryStore;
use onward_store::{
    ColumnValue, Error, JournalChunk, RunEventReader, RunHead, Store as _, StoreLimits,
    StorePolicy, StoredRow, TableScan,
};

use super::Flaw;

/// A scan goes on beyond its end.
pub(crate) struct ForgetsUntil;

#[async_trait]
impl Flaw for ForgetsUntil {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        memory
            .scan_rows(TableScan {
                until: None,
                ..scan
            })
            .await
    }
}

/// A scan ends before its end.
pub(crate) struct TakesUntilForBefore;

#[async_trait]
impl Flaw for TakesUntilForBefore {
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

/// Every page is the first.
pub(crate) struct ForgetsAfter;

#[async_trait]
impl Flaw for ForgetsAfter {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        memory
            .scan_rows(TableScan {
                after: None,
                ..scan
            })
            .await
    }
}

/// Pages go on after a place in the index, so rows that share it are lost.
pub(crate) struct PagesWithoutTheKey;

#[async_trait]
impl Flaw for PagesWithoutTheKey {
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
pub(crate) struct OrdersWithoutCase;

#[async_trait]
impl Flaw for OrdersWithoutCase {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let mut rows = memory.scan_rows(scan).await?;
        rows.sort_by_key(|stored| stored.row.0[0].to_string().to_lowercase());
        Ok(rows)
    }
}

/// The limit is cut off to 32 bits.
pub(crate) struct CutsLimits;

#[async_trait]
impl Flaw for CutsLimits {
    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let limit = usize::try_from(u32::try_from(scan.limit).unwrap_or(0)).unwrap();
        memory.scan_rows(TableScan { limit, ..scan }).await
    }
}

/// Answers are as large as they are asked to be.
pub(crate) struct IgnoresThePagePolicy;

impl Flaw for IgnoresThePagePolicy {
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

/// Commits are as large as they are.
pub(crate) struct IgnoresTheOtherLimits;

impl Flaw for IgnoresTheOtherLimits {
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

/// A chunk that began before is left out.
pub(crate) struct SkipsTheChunkInTheMiddle;

#[async_trait]
impl Flaw for SkipsTheChunkInTheMiddle {
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

/// Every journal is read from its beginning.
pub(crate) struct IgnoresFrom;

#[async_trait]
impl Flaw for IgnoresFrom {
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

/// Every run is said to be behind.
pub(crate) struct ListsEveryRunAsBehind;

#[async_trait]
impl Flaw for ListsEveryRunAsBehind {
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

/// The list is cut before it is narrowed: a page of finished runs hides those behind it.
pub(crate) struct CutsBeforeNarrowing;

#[async_trait]
impl Flaw for CutsBeforeNarrowing {
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

/// A list begins with the run it should go on after.
pub(crate) struct RepeatsTheLastRun;

#[async_trait]
impl Flaw for RepeatsTheLastRun {
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

/// The event bus is where the projector is.
pub(crate) struct ConfusesReaders;

#[async_trait]
impl Flaw for ConfusesReaders {
    async fn run(&self, memory: &MemoryStore, run: &RunId) -> Result<Option<RunHead>, Error> {
        let head = memory.read_run_head(run).await?;
        Ok(head.map(|head| {
            head.clone()
                .with_reader_at(RunEventReader::EventBus, head.projected_seq)
        }))
    }
}
