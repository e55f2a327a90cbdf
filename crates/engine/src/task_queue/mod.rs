//! Task queue for workers: claim, heartbeat, complete, fail. The worker with the claim token holds
//! a task until the lease expires.
//!
//! A task is one attempt of an operation, stored as a [`TaskRow`]. Each arrow below is one commit:
//!
//! ```text
//!    shard owner: starts the attempt             shard owner: starts the attempt and
//!    and stores the row                          stores the row for a worker that waits
//!           |                                    in this process (TaskMatcher)
//!           v                                              |
//!     +----------+   worker: claim_tasks                   v
//!     |          |------------------------------------->+-----------+  worker:
//!     |  queued  |                                      |  claimed  |  heartbeat_task
//!     |          |<-------------------------------------|           |--+ extends
//!     +----------+   released, row is queued again:     |           |<-+ the lease
//!       |      |       worker: release_task             +-----------+
//!       |      |       engine: the task could not be      |   |   |
//!       |      |       delivered to the worker            |   |   | worker: complete_task
//!       |      |       (release_all, reclaim_task)        |   |   | with a result or an error
//!       |      |                                          |   |   +--> completed / failed
//!       |      |                                          |   |
//!       |      |                                          |   | lease reaper of any node:
//!       |      |                                          |   | expire_leases
//!       |      |                                          |   +------> lease expired
//!       |      |   shard owner: operation abandoned,      |
//!       |      |   or execution over                      |
//!       |      +----------------------+-------------------+
//!       |                             +----------------------------> withdrawn
//!       |   node: the function was deployed in a component
//!       |   (redirect_queued_tasks), unless it is the last attempt
//!       +----------------------------------------------------------> redirected
//! ```
//!
//! A task in one of the states on the right has no row and no valid claim token: a request of the
//! worker about it fails with [`LeaseLost`](crate::client::ClientError::LeaseLost). The commit that
//! deletes the row also records the end of the attempt:
//!
//! - completed / failed: in the journal, if the shard owner is in the process of the client;
//!   otherwise as a message in the inbox of the shard.
//! - lease expired: as a message with the error `worker_lost`, or `timeout` if the attempt exceeded
//!   its timeout, which begins with the claim; `in_doubt` for a task that is at most once.
//! - redirected: as a message with the error `unknown_function`.
//! - withdrawn: in the journal; if the execution is over, only the end of the execution.
//!
//! The claim token stays valid until the lease reaper commits: a heartbeat or result that is stored
//! before that commit is accepted, even after the expiry time.
//!
//! The shard owner applies the retry policy to an error. A retry is a new attempt with a new row.

mod claim;
mod held_task;
mod lease_expiry;
mod redirect;
mod registration;
mod task_list;

use std::time::Duration;

use onward_base::{Payload, Scope, SharedText, Timestamp};
use onward_journal::{DeliveryGuarantee, ExecutionId, PromiseId};
use onward_store::Store;
use onward_store::tables::TaskRow;

use crate::client::EngineClient;
use crate::node::Notification;
use crate::shard::{AttemptId, owner_key, task_row};
use crate::task_matcher::TaskMatcher;

pub(crate) use self::held_task::reclaim_task;
pub use self::lease_expiry::expire_leases;
pub(crate) use self::lease_expiry::next_lease_expiry;
pub(crate) use self::redirect::{
    deployed_meanwhile_error, redirect_all_queued_tasks, redirect_queued_tasks,
};
pub use self::registration::worker_registrations;
pub use self::task_list::TaskCursor;

/// Interval for polling the store for tasks that another process may have queued.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of tries of an operation whose commit conflicts with another commit.
const CONFLICT_RETRIES_MAX: u32 = 20;

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
    /// Timeout of the task in milliseconds, from the claim on; `None` means no timeout.
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
    fn owner_key(&self) -> SharedText {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        owner_key(tenant, project, environment)
    }
}

/// Notifies one worker per function of a queued task: a worker that waits in this process,
/// otherwise, through the store, workers in other processes.
pub(crate) fn announce_tasks(
    store: &dyn Store,
    matcher: &TaskMatcher,
    owner: &SharedText,
    functions: &[SharedText],
) {
    for function in matcher.notify_waiters(owner, functions) {
        store.notify(Notification::TaskQueued(owner.clone(), function.clone()).to_string());
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
