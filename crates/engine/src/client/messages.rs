//! Messages to executions: signals and cancellation requests, which the shard owner reads from the
//! inbox.

use onward_base::{BoundedName, Payload, SharedText};
use onward_journal::ExecutionId;
use onward_store::tables::{ExecutionRow, InboxMessageRow};
use onward_store::{ChangeOutcome, Commit};

use super::{ClientError, EngineClient, is_execution_over};
use crate::node::ShardHint;
use crate::shard::{cancel_message, signal_message};

impl EngineClient {
    /// Sends a signal. Sending it again with the same idempotency key has no effect.
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
