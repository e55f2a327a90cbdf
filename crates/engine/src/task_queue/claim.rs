//! Claims of queued tasks: a worker scans the store, and waits for a notification if there is none.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use onward_base::{Payload, Scope, SharedText};
use onward_store::tables::{TaskRow, WorkerTaskState};
use onward_store::{Commit, Error, RecordReader as _, StoreErrorKind, TableScan};
use tokio::time::Instant;

use super::{CLAIM_POLL_INTERVAL, CONFLICT_RETRIES_MAX, ClaimRequest, LeasedTask};
use crate::client::{ClientError, EngineClient};
use crate::shard::task_row;
use crate::task_matcher::TaskMatcher;

/// Maximum number of tasks in one claim.
const CLAIM_BATCH_MAX: usize = 100;

impl EngineClient {
    /// Claims tasks. If there is none, waits for one for at most `wait`, or until `gone` completes.
    /// Do not drop this future before it completes: a task that was claimed for a caller that no
    /// longer polls stays held until its lease expires.
    pub async fn claim_tasks(
        &self,
        request: &ClaimRequest,
        wait: Duration,
        disconnected: impl Future<Output = ()>,
    ) -> Result<Vec<LeasedTask>, ClientError> {
        self.register_worker_functions(request).await?;
        let mut disconnected = pin!(disconnected);
        let until = Instant::now() + wait;
        let owner = self.owner_key();
        let matcher = self.task_matcher();
        loop {
            // From here on the matcher notifies this waiter of every task that is queued.
            let waiting = matcher.register_waiter(&owner, request);
            let held = self.try_claim_tasks(request, &matcher).await?;
            if !held.is_empty() || Instant::now() >= until {
                return Ok(held);
            }
            waiting.set_capacity(request.max_tasks.clamp(1, CLAIM_BATCH_MAX));
            let is_gone = tokio::select! {
                () = waiting.wait_notified() => false,
                () = tokio::time::sleep_until((Instant::now() + CLAIM_POLL_INTERVAL).min(until)) => false,
                () = &mut disconnected => true,
            };
            let held = waiting.close().await;
            if is_gone {
                self.release_all(&held).await;
                return Ok(Vec::new());
            }
            if !held.is_empty() {
                return Ok(held);
            }
        }
    }

    async fn try_claim_tasks(
        &self,
        request: &ClaimRequest,
        matcher: &TaskMatcher,
    ) -> Result<Vec<LeasedTask>, ClientError> {
        let most = request.max_tasks.clamp(1, CLAIM_BATCH_MAX);
        for _ in 0..CONFLICT_RETRIES_MAX {
            let within = most + matcher.claims_in_progress_count().min(CLAIM_BATCH_MAX);
            let found = self
                .list_queued_tasks(request, within + 1, self.next_claim_rotation())
                .await?;
            let are_all = found.len() <= within;
            if are_all {
                matcher.clear_backlog(&self.owner_key(), &request.functions);
            }
            let taken =
                matcher.reserve_tasks(found.iter().map(|(row, _)| task_row::attempt_id(row)), most);
            if taken.ids.is_empty() {
                return Ok(Vec::new());
            }
            let now = self.store().now().await?;
            let mut commit = Commit::new();
            let mut held = Vec::with_capacity(taken.ids.len());
            for (row, version) in found
                .into_iter()
                .filter(|(row, _)| taken.ids.contains(&task_row::attempt_id(row)))
            {
                let claim = crate::client::random_key().into();
                let mut row = row;
                task_row::mark_claimed(&mut row, &request.worker, request.lease_ms, claim, now);
                commit = commit.update(&row, version);
                let input = Payload::parse(&row.input).map_err(Error::corrupt)?;
                held.push(task_row::to_leased_task(row, input));
            }
            match self.store().commit(commit).await {
                Ok(_) => {
                    // There are more tasks, for the next waiter.
                    if !are_all {
                        matcher.notify_waiters(&self.owner_key(), &request.functions);
                    }
                    return Ok(held);
                }
                // Another process claimed one of the tasks first, or one of them was withdrawn.
                Err(Error::Conflict(_)) => {}
                Err(error) => {
                    if error.kind() == StoreErrorKind::Unknown {
                        self.release_all(&held).await;
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(Vec::new())
    }

    /// Lists queued tasks; those of one function are in queue order.
    async fn list_queued_tasks(
        &self,
        request: &ClaimRequest,
        most: usize,
        turn: usize,
    ) -> Result<Vec<(TaskRow, u64)>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        let mut found: Vec<(TaskRow, u64)> = Vec::new();
        let functions: BTreeSet<&SharedText> = request.functions.iter().collect();
        // The first function rotates with each claim, so that no function starves.
        let first = turn % functions.len().max(1);
        for function in functions.iter().cycle().skip(first).take(functions.len()) {
            if found.len() >= most {
                break;
            }
            let scan = TableScan::by_index::<TaskRow>(TaskRow::BY_FUNCTION)
                .where_equal(tenant)
                .where_equal(project)
                .where_equal(environment);
            let scan = scan
                .where_equal(*function)
                .where_equal(&WorkerTaskState::Queued)
                .with_limit(most - found.len());
            let rows: Vec<(TaskRow, u64)> = self.store().list_records(scan).await?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// Releases tasks whose claim may be stored although the worker does not learn of it.
    pub(super) async fn release_all(&self, held: &[LeasedTask]) {
        for held in held {
            if let Err(error) = self.release_task(held.id, &held.claim_token).await {
                tracing::debug!(%error, "task could not be released: if it is claimed, it stays claimed until its lease expires");
            }
        }
    }
}
