//! Task queue for workers: claim, heartbeat, complete, fail. The worker with the claim token holds
//! a task until the lease expires.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use onward_base::{Payload, Scope, SharedText, Timestamp};
use onward_journal::{DeliveryGuarantee, ExecutionError, ExecutionId, InvokeResult, PromiseId};
use onward_store::tables::{FunctionRow, TaskRow, WorkerFunctionRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowChange, RowKey, ShardId, Store,
    StoreErrorKind, TableScan,
};
use tokio::time::Instant;

use crate::client::{ClientError, EngineClient};
use crate::node::{Notification, ShardHint, node_metrics};
use crate::shard::task_row::{self, STATE_QUEUED};
use crate::shard::{AttemptId, in_doubt_error, owner_key, result_message};
use crate::task_matcher::TaskMatcher;

/// Interval for polling the store for tasks that another process may have queued.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of tasks in one claim.
const CLAIM_BATCH_MAX: usize = 100;

/// Maximum number of tries of an operation whose commit conflicts with another commit.
const CONFLICT_RETRIES_MAX: u32 = 20;

/// How long a process skips registering a function again after a worker asked for it.
const REGISTRATION_TTL: Duration = Duration::from_secs(60);

/// Number of tasks read per page when the engine scans for expired or redirected tasks.
const TASK_PAGE_SIZE: usize = 100;

/// Request of a worker for tasks.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Name of the worker, for display.
    pub worker: SharedText,
    /// The functions whose tasks the worker performs.
    pub functions: Vec<SharedText>,
    /// Maximum number of tasks to return; clamped to 1 to 100.
    pub max_tasks: usize,
    /// Lease duration in milliseconds: the maximum time between two heartbeats.
    pub lease_ms: u32,
}

/// A task that a worker holds under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedTask {
    /// Identifies the operation and the attempt.
    pub id: AttemptId,
    /// Claim token that the worker must send, together with the id, with every request about the
    /// task.
    pub claim_token: SharedText,
    /// Name of the function to perform.
    pub function: SharedText,
    /// Input of the function.
    pub input: Payload,
    /// Delivery guarantee: whether the task may be repeated.
    pub delivery: DeliveryGuarantee,
    /// Timeout of the task in milliseconds; `None` means no timeout.
    pub timeout_ms: Option<u64>,
    /// When the lease expires, unless the worker sends a heartbeat before.
    pub leased_until: Timestamp,
}

impl LeasedTask {
    /// The operation of the task: the same for every attempt, different for every other operation.
    pub fn promise_id(&self) -> PromiseId {
        self.id.promise_id()
    }
}

impl EngineClient {
    /// Claims tasks. If there is none, waits for one for at most `wait`, or until `gone` completes.
    /// Do not drop this future before it completes: a task that was claimed for a caller that no
    /// longer polls stays held until its lease expires.
    pub async fn claim_tasks(
        &self,
        wanted: &ClaimRequest,
        wait: Duration,
        gone: impl Future<Output = ()>,
    ) -> Result<Vec<LeasedTask>, ClientError> {
        self.register_worker_functions(wanted).await?;
        let mut gone = pin!(gone);
        let until = Instant::now() + wait;
        let owner = self.owner_key();
        let offers = self.task_matcher();
        loop {
            // From here on the matcher notifies this waiter of every task that is queued.
            let waiting = offers.register_waiter(&owner, wanted);
            let held = self.try_claim_tasks(wanted, &offers).await?;
            if !held.is_empty() || Instant::now() >= until {
                return Ok(held);
            }
            waiting.set_capacity(wanted.max_tasks.clamp(1, CLAIM_BATCH_MAX));
            let is_gone = tokio::select! {
                () = waiting.wait_notified() => false,
                () = tokio::time::sleep_until((Instant::now() + CLAIM_POLL_INTERVAL).min(until)) => false,
                () = &mut gone => true,
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

    fn owner_key(&self) -> SharedText {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        owner_key(tenant, project, environment)
    }

    /// Registers that workers perform these functions. Of functions that a component has, a worker
    /// gets only the tasks that were queued before the deployment. Fails if every requested
    /// function is deployed in a component.
    async fn register_worker_functions(&self, wanted: &ClaimRequest) -> Result<(), ClientError> {
        let mut deployed = None;
        let mut is_any_ours = false;
        for function in &wanted.functions {
            if self.is_recently_registered(function)
                || self
                    .register_worker_function(function, &wanted.worker)
                    .await?
            {
                is_any_ours = true;
            } else {
                deployed = Some(function);
            }
        }
        match deployed {
            Some(function) if !is_any_ours => {
                Err(ClientError::FunctionDeployed(function.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn is_recently_registered(&self, function: &SharedText) -> bool {
        let Some(nearby) = self.local_hub() else {
            return false;
        };
        let asked = nearby
            .registered_functions
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        asked
            .get(&(self.owner_key(), function.clone()))
            .is_some_and(|at| at.elapsed() < REGISTRATION_TTL)
    }

    /// Registers one function for workers. Returns `false` if a component has the function.
    async fn register_worker_function(
        &self,
        function: &SharedText,
        worker: &SharedText,
    ) -> Result<bool, ClientError> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        let key = RowKey(vec![
            tenant.to_value(),
            project.to_value(),
            environment.to_value(),
            function.to_value(),
        ]);
        let deployed: Option<(FunctionRow, u64)> = self.store().read_record(key.clone()).await?;
        if deployed.is_some() {
            return Ok(false);
        }
        for _ in 0..CONFLICT_RETRIES_MAX {
            let known: Option<(WorkerFunctionRow, u64)> =
                self.store().read_record(key.clone()).await?;
            let row = WorkerFunctionRow {
                tenant_id: tenant.clone(),
                project_id: project.clone(),
                environment_id: environment.clone(),
                name: function.clone(),
                worker: worker.clone(),
                asked_at: self.store().now().await?,
            };
            let change = known.map_or_else(
                || RowChange::insert(&row),
                |(_, version)| RowChange::update(&row, version),
            );
            let mut commit = Commit::new();
            commit.changes.push(change);
            match self.store().commit(commit).await {
                Ok(_) => break,
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(nearby) = self.local_hub() {
            let mut asked = nearby
                .registered_functions
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            asked.retain(|_, at| at.elapsed() < REGISTRATION_TTL);
            asked.insert((self.owner_key(), function.clone()), Instant::now());
        }
        Ok(true)
    }

    async fn try_claim_tasks(
        &self,
        wanted: &ClaimRequest,
        offers: &TaskMatcher,
    ) -> Result<Vec<LeasedTask>, ClientError> {
        let most = wanted.max_tasks.clamp(1, CLAIM_BATCH_MAX);
        for _ in 0..CONFLICT_RETRIES_MAX {
            let within = most + offers.claims_in_progress_count().min(CLAIM_BATCH_MAX);
            let found = self
                .list_queued_tasks(wanted, within + 1, self.next_claim_rotation())
                .await?;
            let are_all = found.len() <= within;
            if are_all {
                offers.clear_backlog(&self.owner_key(), &wanted.functions);
            }
            let taken =
                offers.reserve_tasks(found.iter().map(|(row, _)| task_row::attempt_id(row)), most);
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
                task_row::mark_claimed(&mut row, &wanted.worker, wanted.lease_ms, claim, now);
                commit = commit.update(&row, version);
                let input = Payload::parse(&row.input).map_err(Error::corrupt)?;
                held.push(task_row::to_leased_task(row, input));
            }
            match self.store().commit(commit).await {
                Ok(_) => {
                    // There are more tasks, for the next waiter.
                    if !are_all {
                        offers.notify_waiters(&self.owner_key(), &wanted.functions);
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

    /// Releases tasks whose claim may be stored although the worker does not learn of it.
    async fn release_all(&self, held: &[LeasedTask]) {
        for held in held {
            if let Err(error) = self.release_task(held.id, &held.claim_token).await {
                tracing::debug!(%error, "a task was not claimed, or stays claimed until its lease runs out");
            }
        }
    }

    /// Lists queued tasks; those of one function are in queue order.
    async fn list_queued_tasks(
        &self,
        wanted: &ClaimRequest,
        most: usize,
        turn: usize,
    ) -> Result<Vec<(TaskRow, u64)>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        let mut found: Vec<(TaskRow, u64)> = Vec::new();
        let functions: BTreeSet<&SharedText> = wanted.functions.iter().collect();
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
                .where_equal(&SharedText::from(STATE_QUEUED))
                .with_limit(most - found.len());
            let rows: Vec<(TaskRow, u64)> = self.store().list_records(scan).await?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// Heartbeat of a worker: extends the lease of a task. Returns the new expiry time.
    pub async fn heartbeat_task(
        &self,
        id: AttemptId,
        claim: &str,
    ) -> Result<Timestamp, ClientError> {
        let longer =
            |row: &TaskRow, now: Timestamp| now.plus_ms(row.lease_ms.into()).max(row.leased_until);
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

    /// Releases a task that the worker has not begun: it is queued again as if it had never been
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
        if let Some(nearby) = self.local_hub() {
            let (row, _) =
                read_claimed_task(&**self.store(), id, claim, |row| self.is_task_in_scope(row))
                    .await?;
            match nearby.report_completion(&row, result.clone()).await {
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
        wanted: &ClaimRequest,
    ) -> Result<Option<LeasedTask>, ClientError> {
        if let Err(error) = self.register_worker_functions(wanted).await {
            tracing::debug!(%error, "a worker cannot ask for what follows");
        }
        let waiting =
            self.task_matcher()
                .register_sticky_waiter(id.execution, &self.owner_key(), wanted);
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
    let (state, leased_until) = (STATE_QUEUED.into(), Timestamp::MAX);
    Ok(Commit::new().update(
        &TaskRow {
            state,
            leased_until,
            worker: None,
            claim: None,
            ..row.clone()
        },
        version,
    ))
}

/// Notifies one worker per function of a queued task: a worker that waits in this process,
/// otherwise, through the store, workers in other processes.
pub(crate) fn announce_tasks(
    store: &dyn Store,
    offers: &TaskMatcher,
    owner: &SharedText,
    functions: &[SharedText],
) {
    for function in offers.notify_waiters(owner, functions) {
        store.notify(Notification::TaskQueued(owner.clone(), function.clone()).to_string());
    }
}

/// Releases a task that is, or may be, held by a worker that will not learn of it. If the store
/// stays unreachable, the task is left to its lease.
pub(crate) async fn reclaim_task(
    store: &dyn Store,
    offers: &TaskMatcher,
    id: AttemptId,
    claim: &str,
) {
    for _ in 0..CONFLICT_RETRIES_MAX {
        match update_claimed_task(store, id, claim, |_| true, requeue_commit).await {
            Ok((row, _)) => {
                let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
                return announce_tasks(store, offers, &owner, &[row.function]);
            }
            Err(ClientError::Store(error)) if error.kind() == StoreErrorKind::Fatal => return,
            // The commit that stores the claim may still be in progress.
            Err(_) => tokio::time::sleep(CLAIM_POLL_INTERVAL).await,
        }
    }
}

/// Position of a task in the list of its scope; remains valid after the task is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCursor {
    function: SharedText,
    state: SharedText,
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
            state: state.clone(),
            queued_at: *queued_at,
            id: task_row::attempt_id(task),
        }
    }

    /// Parses a cursor from the text that its `Display` writes; `None` if the text is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        let (micros, state, id) = (
            parts.next()?.parse().ok()?,
            parts.next()?.into(),
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

/// Ends a task: deletes its row, so that no worker holds it, and sends the result to the execution.
fn completion_commit(
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

/// Fails tasks whose lease has expired: as in doubt if the task is at most once, otherwise as
/// `worker_lost`. Returns the shards that have messages to read.
pub async fn expire_leases(store: &dyn Store, now: Timestamp) -> Result<BTreeSet<ShardId>, Error> {
    let mut scan = TableScan::by_index::<TaskRow>(TaskRow::BY_LEASE)
        .where_at_most(&now)
        .with_limit(TASK_PAGE_SIZE);
    let mut shards = BTreeSet::new();
    loop {
        let lost: Vec<(TaskRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = lost.last() else {
            return Ok(shards);
        };
        scan = scan.starting_after(last);
        fail_expired_tasks(store, lost, now, &mut shards).await?;
    }
}

async fn fail_expired_tasks(
    store: &dyn Store,
    lost: Vec<(TaskRow, u64)>,
    now: Timestamp,
    shards: &mut BTreeSet<ShardId>,
) -> Result<(), Error> {
    for (row, version) in lost {
        let worker = row.worker.as_deref().unwrap_or_default();
        let how = format!("worker {worker} was not heard of for {} ms", row.lease_ms);
        let is_once = task_row::is_at_most_once(&row);
        let error = if is_once {
            in_doubt_error(&how)
        } else {
            ExecutionError::from_kind_name("worker_lost", how)
        };
        tracing::warn!(execution = %row.execution_id, function = %row.function, worker, "a worker is lost");
        match store
            .commit(completion_commit(&row, version, Err(error), now)?)
            .await
        {
            Ok(_) => {
                shards.insert(row.shard);
                if is_once {
                    node_metrics::count_in_doubt(task_row::attempt_id(&row));
                }
            }
            // A heartbeat or result of the worker arrived at the last moment.
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// For each function of these tasks, the worker that asked for it last, and when.
pub(crate) async fn worker_registrations(
    store: &dyn Store,
    tasks: &[TaskRow],
) -> Result<BTreeMap<SharedText, (SharedText, Timestamp)>, Error> {
    let mut asked = BTreeMap::new();
    for TaskRow {
        tenant_id,
        project_id,
        environment_id,
        function,
        ..
    } in tasks
    {
        let key = [
            tenant_id.to_value(),
            project_id.to_value(),
            environment_id.to_value(),
            function.to_value(),
        ];
        let row: Option<(WorkerFunctionRow, u64)> = store.read_record(RowKey(key.into())).await?;
        asked.extend(row.map(|(row, _)| (row.name, (row.worker, row.asked_at))));
    }
    Ok(asked)
}

/// Error of an attempt that was queued for a worker when its function was deployed.
pub(crate) fn deployed_meanwhile_error() -> ExecutionError {
    ExecutionError::from_kind_name(
        "unknown_function",
        "it was deployed after it had been asked for",
    )
}

/// Ends the attempts that were queued for a worker when their function was deployed: the component
/// performs the next attempt.
pub(crate) async fn redirect_queued_tasks(
    store: &dyn Store,
    named: &FunctionRow,
) -> Result<(), Error> {
    let FunctionRow {
        tenant_id,
        project_id,
        environment_id,
        name,
        ..
    } = named;
    let scan = TableScan::by_index::<TaskRow>(TaskRow::BY_FUNCTION)
        .where_equal(tenant_id)
        .where_equal(project_id)
        .where_equal(environment_id)
        .where_equal(name);
    let mut scan = scan
        .where_equal(&SharedText::from(STATE_QUEUED))
        .with_limit(TASK_PAGE_SIZE);
    loop {
        let waiting: Vec<(TaskRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = waiting.last() else {
            return Ok(());
        };
        scan = scan.starting_after(last);
        // A task without another attempt stays queued for a worker.
        let waiting = waiting.into_iter().filter(|(row, _)| !row.is_last);
        for (row, version) in waiting {
            match store
                .commit(completion_commit(
                    &row,
                    version,
                    Err(deployed_meanwhile_error()),
                    store.now().await?,
                )?)
                .await
            {
                // On a conflict a worker has claimed the task first, which is equally good.
                Ok(_) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Calls [`redirect_queued_tasks`] for every deployed function.
pub(crate) async fn redirect_all_queued_tasks(store: &dyn Store) -> Result<(), Error> {
    let mut scan = TableScan::all_rows::<FunctionRow>();
    loop {
        let page: Vec<(FunctionRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        scan = scan.starting_after(last);
        for (named, _) in page {
            redirect_queued_tasks(store, &named).await?;
        }
    }
}

/// The id of the attempt that a task row stands for.
pub const fn attempt_id_of(task: &TaskRow) -> AttemptId {
    task_row::attempt_id(task)
}

/// Name of an attempt: execution id, operation number and attempt number, separated by dots.
pub fn task_name(id: AttemptId) -> String {
    format!("{}.{}.{}", id.execution, id.number, id.attempt)
}

/// Parses the name that [`task_name`] writes; `None` if it is malformed.
pub fn parse_task_name(name: &str) -> Option<AttemptId> {
    let mut parts = name.split('.');
    let execution: ExecutionId = parts.next()?.parse().ok()?;
    let (number, attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(AttemptId {
        execution,
        number,
        attempt,
    })
}
