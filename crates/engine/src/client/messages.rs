//! Messages to executions: signals and cancellation requests, which the shard owner reads from the
//! inbox.

use onward_base::{BoundedName, Payload, SharedText};
use onward_journal::ExecutionId;
use onward_store::tables::{ExecutionRow, InboxMessageRow};
use onward_store::{ChangeOutcome, Commit, TableScan};

use super::{ClientError, EngineClient, is_execution_over};
use crate::node::ShardHint;
use crate::row_body;
use crate::shard::{cancel_message, signal_message};

/// Maximum number of signals that an execution has not consumed.
const SIGNALS_MAX: u64 = 10_000;

/// Maximum size of the payloads of those signals, in bytes: 64 MiB.
const SIGNAL_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of messages to an execution that its shard owner has not read.
const UNREAD_MESSAGES_MAX: usize = 2_000;

impl EngineClient {
    /// Sends a signal. Sending it again with the same idempotency key has no effect. Fails if the
    /// execution has too many signals that it has not consumed.
    pub async fn send_signal(
        &self,
        to: ExecutionId,
        name: BoundedName,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<(), ClientError> {
        self.check_payload_size(&payload)?;
        let row = self
            .find_execution(to)
            .await?
            .ok_or(ClientError::ExecutionNotFound(to))?;
        let is_over = is_execution_over(&row) && self.execution_result(to).await?.is_some();
        if is_over && key.is_none() {
            return Err(ClientError::ExecutionEnded(to));
        }
        if !is_over {
            self.check_signal_backlog(&row).await?;
        }
        let now = self.store.now().await?;
        let message = signal_message(to, row.shard, name, payload, key.map(SharedText::from), now)?;
        let receipt = self
            .store
            .commit(Commit::new().insert_or_keep(&message))
            .await?;
        // A sender that retries after a lost response succeeds, even if this signal was the last
        // thing the execution waited for and the execution has ended since.
        let is_new = receipt.changes.contains(&ChangeOutcome::Applied);
        self.notify_shard(message.shard, ShardHint::MessageArrived);
        if is_over && is_new {
            Err(ClientError::ExecutionEnded(to))
        } else {
            Ok(())
        }
    }

    /// Fails if the execution has too many signals, or too large ones, that it has not consumed, or
    /// too many messages that its shard owner has not read.
    async fn check_signal_backlog(&self, row: &ExecutionRow) -> Result<(), ClientError> {
        let full = |found: String, limit| ClientError::SignalsFull {
            execution: row.execution_id,
            found,
            limit,
        };
        let backlog = row_body::signal_backlog(&row.body);
        if backlog.count >= SIGNALS_MAX {
            return Err(full(format!("{} signals", backlog.count), SIGNALS_MAX));
        }
        if backlog.bytes >= SIGNAL_BYTES_MAX {
            let found = format!("{} bytes of signals", backlog.bytes);
            return Err(full(found, SIGNAL_BYTES_MAX));
        }
        let unread = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_EXECUTION)
            .where_equal(&row.execution_id)
            .where_equal(&row.shard)
            .with_limit(UNREAD_MESSAGES_MAX);
        let unread = self.store.count_rows(unread).await?;
        if unread >= UNREAD_MESSAGES_MAX as u64 {
            return Err(full(format!("{unread} messages that"), unread));
        }
        Ok(())
    }

    /// Requests cancellation of an execution. Fails if the execution has ended.
    pub async fn request_cancel(
        &self,
        execution: ExecutionId,
        reason: &str,
    ) -> Result<(), ClientError> {
        let row = self.find_open_execution(execution).await?;
        let message = cancel_message(execution, row.shard, reason.into(), self.store.now().await?)?;
        self.send_message(&message).await
    }

    async fn send_message(&self, message: &InboxMessageRow) -> Result<(), ClientError> {
        self.store
            .commit(Commit::new().insert_or_keep(message))
            .await?;
        self.notify_shard(message.shard, ShardHint::MessageArrived);
        Ok(())
    }

    /// Returns the row of an execution that has not ended, or that continued as an execution that
    /// has not ended: messages are forwarded to that successor.
    async fn find_open_execution(&self, id: ExecutionId) -> Result<ExecutionRow, ClientError> {
        let row = self
            .find_execution(id)
            .await?
            .ok_or(ClientError::ExecutionNotFound(id))?;
        if is_execution_over(&row) && self.execution_result(id).await?.is_some() {
            Err(ClientError::ExecutionEnded(id))
        } else {
            Ok(row)
        }
    }
}
