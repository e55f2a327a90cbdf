//! Everything a store holds, read through the trait: two stores are alike, and a refused commit left nothing, when
//! their dumps are equal.

use std::collections::BTreeMap;

use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId, RunSeq};

use super::sample;
use crate::{Error, JournalChunk, Page, RunHead, Scan, Store, Stored, Table, tables};

const PAGE: usize = 500;

/// Everything a store holds; of journals, those of the suite's executions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The rows of every table, in the order of their keys.
    pub rows: BTreeMap<&'static str, Vec<Stored>>,
    /// Journals that are not empty.
    pub journals: Vec<(ExecutionId, Vec<JournalChunk>)>,
    /// Runs, in the order of their ids.
    pub heads: Vec<RunHead>,
    /// Their events.
    pub events: Vec<RunEventRecord>,
}

impl Dump {
    /// Reads everything.
    pub async fn of(store: &(dyn Store + 'static)) -> Result<Self, Error> {
        let (mut by_table, mut journals, mut events) = (BTreeMap::new(), Vec::new(), Vec::new());
        for table in tables::ALL {
            by_table.insert(table.name, rows(store, table).await?);
        }
        for execution in (0..=sample::EXECUTION_MAX).map(sample::execution) {
            let journal = journal(store, execution).await?;
            journals.extend((!journal.is_empty()).then_some((execution, journal)));
        }
        let heads = heads(store).await?;
        for head in &heads {
            events.extend(log(store, &head.run_id).await?);
        }
        Ok(Self { rows: by_table, journals, heads, events })
    }
}

/// All rows of a table.
pub(super) async fn rows(store: &(dyn Store + 'static), table: &'static Table) -> Result<Vec<Stored>, Error> {
    let mut all: Vec<Stored> = Vec::new();
    loop {
        let after = all.last().map(|last| table.key_of(&last.row).0);
        let equal = Vec::new();
        let page = store.rows(Scan { equal, after: after.clone(), limit: PAGE, ..Scan::of(table, None) }).await?;
        let Some(first) = page.first() else { return Ok(all) };
        advances(after.as_ref(), &table.key_of(&first.row).0)?;
        all.extend(page);
    }
}

/// A whole journal.
pub(super) async fn journal(store: &(dyn Store + 'static), execution: ExecutionId) -> Result<Vec<JournalChunk>, Error> {
    let mut all: Vec<JournalChunk> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.first + u64::from(last.count));
        let page = store.journal(execution, from, PAGE).await?;
        let Some(first) = page.first() else { return Ok(all) };
        advances(all.last().map(|last| &last.first), &first.first)?;
        all.extend(page);
    }
}

/// All runs.
async fn heads(store: &(dyn Store + 'static)) -> Result<Vec<RunHead>, Error> {
    let mut all: Vec<RunHead> = Vec::new();
    loop {
        let after = all.last().map(|last| last.run_id.clone());
        let page = store.runs(None, after.as_ref(), PAGE).await?;
        let Some(first) = page.first() else { return Ok(all) };
        advances(after.as_ref(), &first.run_id)?;
        all.extend(page);
    }
}

/// The whole log of a run.
pub(super) async fn log(store: &(dyn Store + 'static), run: &RunId) -> Result<Vec<RunEventRecord>, Error> {
    let mut all: Vec<RunEventRecord> = Vec::new();
    loop {
        let after = all.last().map_or(RunSeq::ZERO, |last| last.run_seq);
        let page = store.run_events(run, Page { after, limit: PAGE }).await?;
        let Some(first) = page.first() else { return Ok(all) };
        advances(Some(&after), &first.run_seq)?;
        all.extend(page);
    }
}

/// A store that hands out the same page again would be read for ever.
fn advances<T: PartialOrd>(last: Option<&T>, first: &T) -> Result<(), Error> {
    if Some(first) > last { Ok(()) } else { Err(Error::corrupt("a page does not begin after the one before")) }
}
