//! Loads work of a shard from the store: due executions and the inbox.

use std::sync::Arc;
use std::time::Duration;

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::{ExecutionRow, InboxMessageRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, StoreErrorKind, TableScan};

use super::ShardOwner;
use crate::client::read_journal;
use crate::node::Node;
use crate::shard::ShardInput;

/// Number of messages read per page.
const INBOX_PAGE: usize = 200;

impl ShardOwner<'_> {
    /// Scan of the busy executions, then of those that are due now.
    pub(super) fn due_scan(&self) -> TableScan {
        TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_WAKE)
            .where_equal(&self.shard)
            .where_at_most(&self.time.now())
    }

    /// Begins to load the executions that a scan finds. Returns where to continue once the limit of
    /// concurrent loads is reached.
    pub(super) async fn load_due(
        &mut self,
        mut scan: TableScan,
    ) -> Result<Option<TableScan>, Error> {
        while self.loading.len() < self.node.options.loading_max.max(1) {
            let rows: Vec<(ExecutionRow, u64)> = self.node.store.list_records(scan.clone()).await?;
            let Some((last, _)) = rows.last() else {
                return Ok(None);
            };
            scan = scan.starting_after(last);
            for (row, _) in &rows {
                if !self.core.is_tracking(&row.execution_id) {
                    self.begin_load(row.execution_id, Duration::ZERO);
                }
            }
        }
        Ok(Some(scan))
    }

    pub(super) async fn read_inbox_page(&mut self) -> Result<(), Error> {
        let mut scan = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
            .where_equal(&self.shard)
            .with_limit(INBOX_PAGE);
        scan.after = self.inbox_cursor.take();
        let messages: Vec<(InboxMessageRow, u64)> =
            self.node.store.list_records(scan.clone()).await?;
        self.needs_inbox_read = false;
        // Some messages may have to stay for long; continue after them, so that they do not block
        // those behind.
        if messages.len() == INBOX_PAGE
            && let Some((last, _)) = messages.last()
        {
            self.inbox_cursor = scan.starting_after(last).after;
            self.needs_inbox_read = true;
        }
        if !messages.is_empty() {
            self.feed_core(ShardInput::Messages(messages));
        }
        Ok(())
    }

    pub(super) fn begin_load(&mut self, execution: ExecutionId, after: Duration) {
        if !self.loading.insert(execution) {
            return;
        }
        let node = Arc::clone(self.node);
        // In a separate task: this loop also waits for other events and must not hold a connection
        // meanwhile.
        let reading = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            match read_execution(&node, execution).await {
                Ok(input) => Ok(input),
                Err(error) if error.kind() == StoreErrorKind::Fatal => Err(error),
                Err(error) => {
                    tracing::warn!(%execution, %error, "execution could not be read; retrying");
                    Ok(ShardInput::LoadFailed { execution, error })
                }
            }
        });
        self.pending_inputs.push(Box::pin(async move {
            reading.await.unwrap_or_else(|panic| {
                let error = Error::Unavailable(format!("the task that reads it panicked: {panic}"));
                Ok(ShardInput::LoadFailed { execution, error })
            })
        }));
    }

    /// Loads executions whose wake time is at most `by`, except busy ones: those are in memory, or
    /// left by a previous owner.
    pub(super) async fn load_due_timers(&mut self, by: Timestamp) -> Result<(), Error> {
        let mut due = TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_WAKE)
            .where_equal(&self.shard)
            .where_at_most(&by);
        let never = ExecutionId::from_bytes([255; 32]);
        due.after = Some(vec![
            self.shard.to_value(),
            Timestamp::MIN.to_value(),
            never.to_value(),
        ]);
        self.load_due(due).await.map(drop)
    }
}

async fn read_execution(node: &Node, execution: ExecutionId) -> Result<ShardInput, Error> {
    let stored: Option<(ExecutionRow, u64)> = node
        .store
        .read_record(RowKey(vec![execution.to_value()]))
        .await?;
    let Some((row, version)) = stored else {
        return Ok(ShardInput::NotFound(execution));
    };
    if !node
        .functions
        .ensure_loaded(&*node.store, row.component_digest)
        .await?
    {
        return Err(Error::Corrupt(format!(
            "component {} is not in the store",
            row.component_digest
        )));
    }
    let events = read_journal(&*node.store, execution).await?;
    Ok(ShardInput::Loaded {
        row: Box::new(row),
        version,
        events,
    })
}
