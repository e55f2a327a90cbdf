//! Waits for the end of an execution, in whichever process it runs.

use std::time::Duration;

use onward_base::Payload;
use onward_execution::ExecutionOutcome;
use onward_journal::{ExecutionId, InvokeResult};
use onward_store::ShardId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ClientError, EngineClient, PollPace, StartedExecution, shard_of};
use crate::node::Notification;

/// Interval at which the client notifies the shard owner in another process again that it waits for
/// the end.
const AWAIT_NOTIFICATION_INTERVAL: Duration = Duration::from_secs(5);

/// Whether to read the store before the first wait for a notification.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstRead {
    Performed,
    /// The execution has just started, so the store cannot have its end yet.
    Skipped,
}

impl EngineClient {
    /// Starts a workflow, unless `key` has already started one, and waits for its end until
    /// `timeout` completes. The client subscribes before the start, so with a node in this process
    /// it is notified of the end and does not have to poll.
    pub async fn start_and_wait(
        &self,
        function: &str,
        input: Payload,
        key: Option<&str>,
        timeout: impl Future<Output = ()>,
    ) -> Result<(StartedExecution, Option<InvokeResult>), ClientError> {
        let (id, deployed) = self.prepare_start(function, &input, key).await?;
        let here = self.local_hub().map(|hub| hub.subscribe_ending(id));
        let started = self.start_with_id(id, &deployed, input, key).await?;
        let over = async {
            let is_new = !started.already_existed && started.execution == id;
            match here.filter(|_| is_new) {
                Some(mut here) => match self
                    .receive_ending(id, shard_of(&id), &mut here.receiver, FirstRead::Skipped)
                    .await?
                {
                    ExecutionOutcome::Result(result) => Ok(result),
                    ExecutionOutcome::Continued(next) => self.wait_for_result(next).await,
                },
                None => self.wait_for_result(started.execution).await,
            }
        };
        let result = tokio::select! {
            over = over => Some(over?),
            () = timeout => None,
        };
        Ok((started, result))
    }

    /// Waits until an execution, and every execution it continues as, has ended.
    pub async fn wait_for_result(
        &self,
        execution: ExecutionId,
    ) -> Result<InvokeResult, ClientError> {
        let mut id = execution;
        loop {
            match self.wait_for_ending(id).await? {
                ExecutionOutcome::Result(result) => return Ok(result),
                ExecutionOutcome::Continued(next) => id = next,
            }
        }
    }

    async fn wait_for_ending(&self, id: ExecutionId) -> Result<ExecutionOutcome, ClientError> {
        if let Some(hub) = self.local_hub() {
            let mut here = hub.subscribe_ending(id);
            // Children and successors run in the shard of their first ancestor.
            let row = self
                .find_execution(id)
                .await?
                .ok_or(ClientError::ExecutionNotFound(id))?;
            let first_read = if hub.is_recently_started(id) {
                FirstRead::Skipped
            } else {
                FirstRead::Performed
            };
            return self
                .receive_ending(id, row.shard, &mut here.receiver, first_read)
                .await;
        }
        let mut pace = PollPace::new(None, None);
        loop {
            if let Some(ending) = self.execution_ending(id).await? {
                return Ok(ending);
            }
            tokio::time::sleep(pace.next_interval()).await;
        }
    }

    /// Returns the end as notified in this process or as found in the store.
    async fn receive_ending(
        &self,
        id: ExecutionId,
        shard: ShardId,
        receiver: &mut mpsc::UnboundedReceiver<Option<ExecutionOutcome>>,
        mut first_read: FirstRead,
    ) -> Result<ExecutionOutcome, ClientError> {
        let mut pace = PollPace::new(self.local_hub(), Some(shard));
        let mut notify_at = Instant::now();
        loop {
            // The shard owner in the other process notifies this one when the execution ends.
            if !pace.is_owned_here() && Instant::now() >= notify_at {
                self.store()
                    .notify(Notification::EndingAwaited(id).to_string());
                notify_at = Instant::now() + AWAIT_NOTIFICATION_INTERVAL;
            }
            if std::mem::replace(&mut first_read, FirstRead::Performed) == FirstRead::Performed
                && let Some(ending) = self.execution_ending(id).await?
            {
                return Ok(ending);
            }
            // If another process runs the execution, the notification received here carries no
            // outcome and only means that the store has the end to read.
            if let Ok(Some(Some(ending))) =
                tokio::time::timeout(pace.next_interval(), receiver.recv()).await
            {
                return Ok(ending);
            }
        }
    }
}
