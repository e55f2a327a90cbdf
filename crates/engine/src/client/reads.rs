//! Reads of executions from the store: rows, lists, journals and results.

use onward_base::{Scope, Timestamp};
use onward_execution::{Execution as InMemory, ExecutionOutcome};
use onward_journal::{ExecutionId, ExecutionState, InvokeResult, Journal, JournalEvent, codec};
use onward_store::tables::ExecutionRow;
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use super::{ClientError, EngineClient};

/// The order of a list of executions, by the time they were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionListOrder {
    /// Executions that were started last come first.
    NewestFirst,
    /// Executions that were started first come first.
    OldestFirst,
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

    /// Lists at most `limit` executions of this scope by creation time, after the position `after`
    /// (creation time and id).
    pub async fn list_executions(
        &self,
        order: ExecutionListOrder,
        after: Option<(Timestamp, ExecutionId)>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, ClientError> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let mut scan = TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_AGE)
            .where_equal(tenant)
            .where_equal(project)
            .where_equal(environment)
            .with_limit(limit);
        scan.is_reversed = order == ExecutionListOrder::NewestFirst;
        scan.after = after.map(|(created_at, id)| {
            vec![
                tenant.to_value(),
                project.to_value(),
                environment.to_value(),
                created_at.to_value(),
                id.to_value(),
            ]
        });
        let rows: Vec<(ExecutionRow, u64)> = self.store.list_records(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
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

    /// Reads the events of a journal, starting with sequence `from`.
    pub async fn read_journal_from(
        &self,
        id: ExecutionId,
        from: u64,
    ) -> Result<Vec<JournalEvent>, ClientError> {
        Ok(read_journal_from(&*self.store, id, from).await?)
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
        let journal = Journal::recover(id, self.read_journal(id).await?).map_err(Error::corrupt)?;
        Ok(InMemory::recover(journal, self.limits).execution_outcome())
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
    read_journal_from(store, id, 0).await
}

/// Reads a journal from sequence `from` on, page by page.
async fn read_journal_from(
    store: &dyn Store,
    id: ExecutionId,
    from: u64,
) -> Result<Vec<JournalEvent>, Error> {
    let mut events: Vec<JournalEvent> = Vec::new();
    loop {
        let known = events.len();
        let chunks = store.read_journal(id, from + known as u64, 1_000).await?;
        if chunks.is_empty() {
            return Ok(events);
        }
        for chunk in chunks {
            let decoded = codec::decode_record(id, &chunk.records).map_err(Error::corrupt)?;
            // The first page may begin with earlier events that were stored in the same record as
            // event `from`.
            events.extend(decoded.into_iter().filter(|event| event.sequence >= from));
        }
        if events.len() == known {
            return Err(Error::corrupt(format!(
                "the journal of {id} has no event {}",
                from + known as u64
            )));
        }
    }
}
