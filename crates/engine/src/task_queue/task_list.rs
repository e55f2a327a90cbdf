//! Paginated list of the tasks of a scope, with a cursor that survives the end of its task.

use onward_base::{Scope, SharedText, Timestamp};
use onward_store::tables::{TaskRow, WorkerTaskState};
use onward_store::{ColumnCodec as _, RecordReader as _, TableScan};

use super::{parse_task_name, task_name};
use crate::client::{ClientError, EngineClient};
use crate::shard::{AttemptId, task_row};

/// Position of a task in the list of its scope; remains valid after the task is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCursor {
    function: SharedText,
    state: WorkerTaskState,
    queued_at: Timestamp,
    id: AttemptId,
}

impl TaskCursor {
    /// The position of a task.
    pub fn for_task(task: &TaskRow) -> Self {
        let TaskRow {
            function,
            state,
            queued_at,
            ..
        } = task;
        Self {
            function: function.clone(),
            state: *state,
            queued_at: *queued_at,
            id: task_row::attempt_id(task),
        }
    }

    /// Parses a cursor from the text that its `Display` writes; `None` if the text is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        let (micros, state, id) = (
            parts.next()?.parse().ok()?,
            WorkerTaskState::parse(parts.next()?)?,
            parse_task_name(parts.next()?)?,
        );
        Some(Self {
            function: parts.next()?.into(),
            state,
            queued_at: Timestamp::from_micros(micros)?,
            id,
        })
    }
}

impl std::fmt::Display for TaskCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            function,
            state,
            queued_at,
            id,
        } = self;
        write!(
            f,
            "{}:{state}:{}:{function}",
            queued_at.as_micros(),
            task_name(*id)
        )
    }
}

impl EngineClient {
    /// Lists at most `limit` tasks of this scope after a cursor, ordered by function, then state,
    /// then age (oldest first).
    pub async fn list_tasks(
        &self,
        after: Option<&TaskCursor>,
        limit: usize,
    ) -> Result<Vec<TaskRow>, ClientError> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        let mut scan = TableScan::by_index::<TaskRow>(TaskRow::BY_FUNCTION)
            .where_equal(tenant)
            .where_equal(project)
            .where_equal(environment)
            .with_limit(limit);
        scan.after = after.map(
            |TaskCursor {
                 function,
                 state,
                 queued_at,
                 id,
             }| {
                let order = [function.to_value(), state.to_value(), queued_at.to_value()];
                let whose = [
                    tenant.to_value(),
                    project.to_value(),
                    environment.to_value(),
                ];
                whose
                    .into_iter()
                    .chain(order)
                    .chain(task_row::task_key(*id).0)
                    .collect()
            },
        );
        let rows: Vec<(TaskRow, u64)> = self.store().list_records(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }
}
