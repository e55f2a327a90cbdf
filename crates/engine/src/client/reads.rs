//! Reads of executions from the store: rows, lists, journals and results.

use onward_base::{Scope, SharedText, Timestamp};
use onward_execution::ExecutionOutcome;
use onward_journal::{ExecutionId, ExecutionState, InvokeResult, JournalEvent, codec};
use onward_store::tables::ExecutionRow;
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use super::{ClientError, EngineClient};

/// Maximum number of chunks in a page of a journal.
const JOURNAL_PAGE_CHUNKS: usize = 1_000;

/// The order of a list of executions, by the time they were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionListOrder {
    /// Executions that were started last come first.
    NewestFirst,
    /// Executions that were started first come first.
    OldestFirst,
}

/// Selects executions of a list; the default selects all.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Only executions of this function.
    pub function: Option<SharedText>,
    /// Only executions in this state.
    pub state: Option<ExecutionState>,
}

impl EngineClient {
    /// Returns the row of an execution, or `None` if this scope has no execution with the id.
    pub async fn find_execution(
        &self,
        id: ExecutionId,
    ) -> Result<Option<ExecutionRow>, ClientError> {
        let row: Option<(ExecutionRow, u64)> =
            self.store.read_record(RowKey(vec![id.to_value()])).await?;
        Ok(row.map(|(row, _)| row).filter(|row| self.is_in_scope(row)))
    }

    fn is_in_scope(&self, row: &ExecutionRow) -> bool {
        self.scope
            .matches_ids(&row.tenant_id, &row.project_id, &row.environment_id)
    }

    /// Lists at most `limit` executions of this scope that `filter` selects by creation time, after
    /// the position `after` (creation time and id).
    pub async fn list_executions(
        &self,
        filter: &ExecutionFilter,
        order: ExecutionListOrder,
        after: Option<(Timestamp, ExecutionId)>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, ClientError> {
        let is_reversed = order == ExecutionListOrder::NewestFirst;
        let mut found: Vec<ExecutionRow> = Vec::new();
        for mut scan in self.list_scans(filter) {
            scan = scan.with_limit(limit);
            scan.is_reversed = is_reversed;
            scan.after = after.map(|(created_at, id)| {
                let position = [created_at.to_value(), id.to_value()];
                scan.equal.iter().cloned().chain(position).collect()
            });
            let rows: Vec<(ExecutionRow, u64)> = self.store.list_records(scan).await?;
            found.extend(rows.into_iter().map(|(row, _)| row));
        }
        found.sort_unstable_by_key(|row| (row.created_at, row.execution_id));
        if is_reversed {
            found.reverse();
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The scans that together find the executions that `filter` selects. Each reads nothing else:
    /// executions of a function are indexed by function and state, so there is one for each state.
    fn list_scans(&self, filter: &ExecutionFilter) -> Vec<TableScan> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let scan = |index| {
            TableScan::by_index::<ExecutionRow>(index)
                .where_equal(tenant)
                .where_equal(project)
                .where_equal(environment)
        };
        match filter {
            ExecutionFilter {
                function: None,
                state: None,
            } => vec![scan(ExecutionRow::BY_AGE)],
            ExecutionFilter {
                function: None,
                state: Some(state),
            } => vec![scan(ExecutionRow::BY_STATE).where_equal(state)],
            ExecutionFilter {
                function: Some(function),
                state,
            } => {
                let states = match state {
                    Some(state) => std::slice::from_ref(state),
                    None => &ExecutionState::ALL[..],
                };
                let by_function = |state| {
                    scan(ExecutionRow::BY_FUNCTION)
                        .where_equal(function)
                        .where_equal(state)
                };
                states.iter().map(by_function).collect()
            }
        }
    }

    /// Lists executions of this scope whose ids begin with these hexadecimal digits. `limit`
    /// applies before the scope filter, so it also counts executions of other scopes.
    pub async fn find_by_id_prefix(
        &self,
        digits: &str,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, ClientError> {
        let filled = |with: char| {
            format!(
                "{digits}{}",
                with.to_string().repeat(64 - digits.len().min(64))
            )
            .parse()
        };
        let (Ok(first), Ok(last)) = (filled('0'), filled('f')) else {
            return Ok(Vec::new());
        };
        let (first, last): (ExecutionId, ExecutionId) = (first, last);
        let mut scan = TableScan::all_rows::<ExecutionRow>()
            .where_at_most(&last)
            .with_limit(limit);
        scan.after = first.previous_id().map(|before| vec![before.to_value()]);
        let rows: Vec<(ExecutionRow, u64)> = self.store.list_records(scan).await?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|row| self.is_in_scope(row))
            .collect())
    }

    /// Reads the whole journal of an execution.
    pub async fn read_journal(&self, id: ExecutionId) -> Result<Vec<JournalEvent>, ClientError> {
        Ok(read_journal(&*self.store, id).await?)
    }

    /// Reads a page of the events of a journal, starting with sequence `from`. It is empty at the
    /// end of the journal only.
    pub async fn read_journal_page(
        &self,
        id: ExecutionId,
        from: u64,
    ) -> Result<Vec<JournalEvent>, ClientError> {
        Ok(read_journal_page(&*self.store, id, from).await?)
    }

    /// Returns the last event of a journal; `None` if there is no journal.
    pub async fn last_event(&self, id: ExecutionId) -> Result<Option<JournalEvent>, ClientError> {
        let Some(end) = self.store.read_journal_end(id).await? else {
            return Ok(None);
        };
        let events = codec::decode_record(id, &end.records).map_err(Error::corrupt)?;
        Ok(events.into_iter().last())
    }

    /// Returns the result of an execution, following the executions it continued as; `None` until
    /// the last of them has ended.
    pub async fn execution_result(
        &self,
        id: ExecutionId,
    ) -> Result<Option<InvokeResult>, ClientError> {
        let mut id = id;
        loop {
            match self.execution_ending(id).await? {
                None => return Ok(None),
                Some(ExecutionOutcome::Result(result)) => return Ok(Some(result)),
                Some(ExecutionOutcome::Continued(next)) => id = next,
            }
        }
    }

    /// Returns how an execution ended; `None` until it has ended.
    pub async fn execution_ending(
        &self,
        id: ExecutionId,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        let row = self
            .find_execution(id)
            .await?
            .ok_or(ClientError::ExecutionNotFound(id))?;
        if !is_execution_over(&row) {
            return Ok(None);
        }
        let last = self.last_event(id).await?;
        Ok(last.and_then(|last| ExecutionOutcome::from_last_event(&last.event)))
    }
}

/// Whether the state in the row is terminal.
pub fn is_execution_over(row: &ExecutionRow) -> bool {
    matches!(
        row.state,
        ExecutionState::Completed | ExecutionState::Failed | ExecutionState::Cancelled
    )
}

/// Reads a whole journal, page by page.
pub async fn read_journal(store: &dyn Store, id: ExecutionId) -> Result<Vec<JournalEvent>, Error> {
    let mut events: Vec<JournalEvent> = Vec::new();
    loop {
        let page = read_journal_page(store, id, events.len() as u64).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

/// Reads a page of a journal from sequence `from` on; it is empty at the end of the journal only.
async fn read_journal_page(
    store: &dyn Store,
    id: ExecutionId,
    from: u64,
) -> Result<Vec<JournalEvent>, Error> {
    let chunks = store.read_journal(id, from, JOURNAL_PAGE_CHUNKS).await?;
    let mut events: Vec<JournalEvent> = Vec::new();
    for chunk in &chunks {
        let decoded = codec::decode_record(id, &chunk.records).map_err(Error::corrupt)?;
        // The page may begin with earlier events that were stored in the same record as event
        // `from`.
        events.extend(decoded.into_iter().filter(|event| event.sequence >= from));
    }
    if events.is_empty() && !chunks.is_empty() {
        return Err(Error::corrupt(format!(
            "the journal of {id} has no event {from}"
        )));
    }
    Ok(events)
}
