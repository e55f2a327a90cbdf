//! Complete dumps of a store, read through the trait. Two stores are equal if their dumps are
//! equal; a rejected commit must leave the dump unchanged.

use std::collections::BTreeMap;

use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId, RunSeq};

use super::fixtures;
use crate::{
    Error, JournalChunk, RunEventQuery, RunHead, Store, StoredRow, TableScan, TableSchema, tables,
};

const DUMP_PAGE_ROWS: usize = 500;

/// Everything that a store holds; only the journals of the suite's own executions are included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDump {
    /// The rows of every table by table name, in key order.
    pub rows: BTreeMap<&'static str, Vec<StoredRow>>,
    /// The journals that are not empty.
    pub journals: Vec<(ExecutionId, Vec<JournalChunk>)>,
    /// The heads of all runs, ordered by run id.
    pub heads: Vec<RunHead>,
    /// The events of all runs.
    pub events: Vec<RunEventRecord>,
}

impl StoreDump {
    /// Reads the complete contents of a store.
    pub async fn read_all(store: &(dyn Store + 'static)) -> Result<Self, Error> {
        let (mut by_table, mut journals, mut events) = (BTreeMap::new(), Vec::new(), Vec::new());
        for table in tables::ALL_TABLES {
            by_table.insert(table.name, read_all_rows(store, table).await?);
        }
        for execution in (0..=fixtures::EXECUTION_MAX).map(fixtures::numbered_execution) {
            let journal = read_whole_journal(store, execution).await?;
            journals.extend((!journal.is_empty()).then_some((execution, journal)));
        }
        let heads = read_all_run_heads(store).await?;
        for head in &heads {
            events.extend(read_run_log(store, &head.run_id).await?);
        }
        Ok(Self {
            rows: by_table,
            journals,
            heads,
            events,
        })
    }
}

/// Reads all rows of a table, page by page.
pub(super) async fn read_all_rows(
    store: &(dyn Store + 'static),
    table: &'static TableSchema,
) -> Result<Vec<StoredRow>, Error> {
    let mut all: Vec<StoredRow> = Vec::new();
    loop {
        let after = all.last().map(|last| table.key_of(&last.row).0);
        let equal = Vec::new();
        let page = store
            .scan_rows(TableScan {
                equal,
                after: after.clone(),
                limit: DUMP_PAGE_ROWS,
                ..TableScan::over_table(table, None)
            })
            .await?;
        let Some(first) = page.first() else {
            return Ok(all);
        };
        ensure_page_advances(after.as_ref(), &table.key_of(&first.row).0)?;
        all.extend(page);
    }
}

/// Reads a complete journal, page by page.
pub(super) async fn read_whole_journal(
    store: &(dyn Store + 'static),
    execution: ExecutionId,
) -> Result<Vec<JournalChunk>, Error> {
    let mut all: Vec<JournalChunk> = Vec::new();
    loop {
        let from = all
            .last()
            .map_or(0, |last| last.first + u64::from(last.count));
        let page = store.read_journal(execution, from, DUMP_PAGE_ROWS).await?;
        let Some(first) = page.first() else {
            return Ok(all);
        };
        ensure_page_advances(all.last().map(|last| &last.first), &first.first)?;
        all.extend(page);
    }
}

/// Reads the heads of all runs, page by page.
async fn read_all_run_heads(store: &(dyn Store + 'static)) -> Result<Vec<RunHead>, Error> {
    let mut all: Vec<RunHead> = Vec::new();
    loop {
        let after = all.last().map(|last| last.run_id.clone());
        let page = store
            .list_run_heads(None, after.as_ref(), DUMP_PAGE_ROWS)
            .await?;
        let Some(first) = page.first() else {
            return Ok(all);
        };
        ensure_page_advances(after.as_ref(), &first.run_id)?;
        all.extend(page);
    }
}

/// Reads the complete log of a run, page by page.
pub(super) async fn read_run_log(
    store: &(dyn Store + 'static),
    run: &RunId,
) -> Result<Vec<RunEventRecord>, Error> {
    let mut all: Vec<RunEventRecord> = Vec::new();
    loop {
        let after = all.last().map_or(RunSeq::ZERO, |last| last.run_seq);
        let page = store
            .read_run_events(
                run,
                RunEventQuery {
                    after,
                    limit: DUMP_PAGE_ROWS,
                },
            )
            .await?;
        let Some(first) = page.first() else {
            return Ok(all);
        };
        ensure_page_advances(Some(&after), &first.run_seq)?;
        all.extend(page);
    }
}

/// Fails if a store returns the same page again, which would otherwise cause an endless loop.
fn ensure_page_advances<T: PartialOrd>(last: Option<&T>, first: &T) -> Result<(), Error> {
    if Some(first) > last {
        Ok(())
    } else {
        Err(Error::corrupt("a page does not begin after the one before"))
    }
}
