//! Operations on a claimed task by the holder of its claim token: heartbeat, release and
//! completion.

use onward_base::Timestamp;
use onward_journal::InvokeResult;
use onward_store::tables::{TaskRow, WorkerTaskState};
use onward_store::{Commit, Error, RecordReader as _, Store, StoreErrorKind};

use super::{CLAIM_POLL_INTERVAL, CONFLICT_RETRIES_MAX, ClaimRequest, LeasedTask, announce_tasks};
use crate::client::{ClientError, EngineClient};
use crate::node::ShardHint;
use crate::shard::task_row;
use crate::shard::{AttemptId, owner_key, result_message};
use crate::task_matcher::TaskMatcher;

impl EngineClient {
    /// Heartbeat of a worker: extends the lease of a task. Returns the new expiry time.
    pub async fn heartbeat_task(
        &self,
        id: AttemptId,
        claim: &str,
    ) -> Result<Timestamp, ClientError> {
        let longer = |row: &TaskRow, now: Timestamp| {
            let renewed = now.plus_ms(row.lease_ms.into()).max(row.leased_until);
            renewed.min(row.timeout_at)
        };
        let change = |row: &TaskRow, version, now| {
            Ok(Commit::new().update(
                &TaskRow {
                    leased_until: longer(row, now),
                    ..row.clone()
                },
                version,
            ))
        };
        let (row, now) = self.update_claimed(id, claim, change).await?;
        Ok(longer(&row, now))
    }

    /// Releases a task that the worker has not started: it is queued again as if it had never been
    /// claimed.
    pub async fn release_task(&self, id: AttemptId, claim: &str) -> Result<(), ClientError> {
        let (row, _) = self.update_claimed(id, claim, requeue_commit).await?;
        announce_tasks(
            &**self.store(),
            &self.task_matcher(),
            &self.owner_key(),
            &[row.function],
        );
        Ok(())
    }

    /// Completes or fails a task. The worker no longer holds it afterwards.
    pub async fn complete_task(
        &self,
        id: AttemptId,
        claim: &str,
        result: InvokeResult,
    ) -> Result<(), ClientError> {
        if let Ok(payload) = &result {
            self.check_payload_size(payload)?;
        }
        if let Some(hub) = self.local_hub() {
            let (row, _) =
                read_claimed_task(&**self.store(), id, claim, |row| self.is_task_in_scope(row))
                    .await?;
            match hub.report_completion(&row, result.clone()).await {
                Some(true) => return Ok(()),
                Some(false) => return Err(ClientError::LeaseLost),
                // Another process owns the shard, or is about to.
                None => {}
            }
        }
        let change =
            |row: &TaskRow, version, now| completion_commit(row, version, result.clone(), now);
        let (row, _) = self.update_claimed(id, claim, change).await?;
        self.notify_shard(row.shard, ShardHint::MessageArrived);
        Ok(())
    }

    /// Completes a task like [`Self::complete_task`] and claims the next task of the same
    /// execution, if its function is in `wanted`. As with [`Self::claim_tasks`], do not drop this
    /// future before it completes. Use `claim_tasks` for tasks that are already queued; it returns
    /// many at a time.
    pub async fn complete_task_and_claim_next(
        &self,
        id: AttemptId,
        claim: &str,
        result: InvokeResult,
        request: &ClaimRequest,
    ) -> Result<Option<LeasedTask>, ClientError> {
        if let Err(error) = self.register_worker_functions(request).await {
            tracing::debug!(%error, "functions of the worker could not be registered for the next claim");
        }
        let waiting =
            self.task_matcher()
                .register_sticky_waiter(id.execution, &self.owner_key(), request);
        let ended = self.complete_task(id, claim, result).await;
        let mut held = waiting.close().await;
        if ended.is_err() {
            self.release_all(&held).await;
        }
        ended?;
        Ok(held.pop())
    }

    /// Changes a task that is held by this claim token, with retries on conflicts. Returns the row
    /// as it was before the change, and the time of the change.
    async fn update_claimed(
        &self,
        id: AttemptId,
        claim: &str,
        change: impl Fn(&TaskRow, u64, Timestamp) -> Result<Commit, Error>,
    ) -> Result<(TaskRow, Timestamp), ClientError> {
        update_claimed_task(
            &**self.store(),
            id,
            claim,
            |row| self.is_task_in_scope(row),
            change,
        )
        .await
    }

    fn is_task_in_scope(&self, row: &TaskRow) -> bool {
        self.scope()
            .matches_ids(&row.tenant_id, &row.project_id, &row.environment_id)
    }
}

/// Releases a task that is, or may be, held by a worker that will not learn of it. If the store
/// stays unreachable, the task is left to its lease.
pub(crate) async fn reclaim_task(
    store: &dyn Store,
    matcher: &TaskMatcher,
    id: AttemptId,
    claim: &str,
) {
    for _ in 0..CONFLICT_RETRIES_MAX {
        match update_claimed_task(store, id, claim, |_| true, requeue_commit).await {
            Ok((row, _)) => {
                let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
                return announce_tasks(store, matcher, &owner, &[row.function]);
            }
            Err(ClientError::Store(error)) if error.kind() == StoreErrorKind::Fatal => return,
            // The commit that stores the claim may still be in progress.
            Err(_) => tokio::time::sleep(CLAIM_POLL_INTERVAL).await,
        }
    }
}

/// Changes a task that is held by this claim token, with retries on conflicts. Returns the row as
/// it was before the change, and the time of the change. Fails with `LeaseLost` if the token is not
/// valid or the retries are used up.
async fn update_claimed_task(
    store: &dyn Store,
    id: AttemptId,
    claim: &str,
    is_allowed: impl Fn(&TaskRow) -> bool,
    change: impl Fn(&TaskRow, u64, Timestamp) -> Result<Commit, Error>,
) -> Result<(TaskRow, Timestamp), ClientError> {
    for _ in 0..CONFLICT_RETRIES_MAX {
        let (row, version) = read_claimed_task(store, id, claim, &is_allowed).await?;
        let now = store.now().await?;
        match store.commit(change(&row, version, now)?).await {
            Ok(_) => return Ok((row, now)),
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ClientError::LeaseLost)
}

/// Reads a task that is held by this claim token. Fails with `LeaseLost` if the token is not valid.
async fn read_claimed_task(
    store: &dyn Store,
    id: AttemptId,
    claim: &str,
    is_allowed: impl Fn(&TaskRow) -> bool,
) -> Result<(TaskRow, u64), ClientError> {
    let stored: Option<(TaskRow, u64)> = store.read_record(task_row::task_key(id)).await?;
    let is_held = |row: &TaskRow| is_allowed(row) && row.claim.as_deref() == Some(claim);
    stored
        .filter(|(row, _)| is_held(row))
        .ok_or(ClientError::LeaseLost)
}

/// Puts the task back into the queue as if it had never been claimed.
fn requeue_commit(row: &TaskRow, version: u64, _now: Timestamp) -> Result<Commit, Error> {
    Ok(Commit::new().update(
        &TaskRow {
            state: WorkerTaskState::Queued,
            leased_until: Timestamp::MAX,
            timeout_at: Timestamp::MAX,
            worker: None,
            claim: None,
            ..row.clone()
        },
        version,
    ))
}

/// Ends a task: deletes its row, so that no worker holds it, and sends the result to the execution.
pub(super) fn completion_commit(
    row: &TaskRow,
    version: u64,
    result: InvokeResult,
    now: Timestamp,
) -> Result<Commit, Error> {
    let message = result_message(
        &task_row::attempt_id(row).promise_id(),
        row.shard,
        row.attempt,
        result,
        now,
    )?;
    Ok(Commit::new().delete(row, version).insert_or_keep(&message))
}
