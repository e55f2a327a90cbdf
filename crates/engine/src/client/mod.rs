//! Client access to executions without running them. It needs only the store, so it works from any
//! process.
//!
//! - `deploy`: deploys components.
//! - `start`: starts executions.
//! - `messages`: sends signals and cancellation requests.
//! - `reads`: reads executions, journals and results.
//! - `change_watch`: waits for changes.

mod change_watch;
mod deploy;
mod messages;
mod reads;
mod start;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onward_base::{Payload, Scope};
use onward_execution::ExecutionLimits;
use onward_journal::ExecutionId;
use onward_store::{Error, ShardId, Store};

pub use self::change_watch::ChangeWatch;
pub(crate) use self::change_watch::PollPace;
pub use self::deploy::{DeploymentReceipt, FunctionTakeover, TakeoverPolicy};
pub use self::reads::{ExecutionFilter, ExecutionListOrder, is_execution_over, read_journal};
use crate::node::{LocalHub, Node, Notification, ShardHint};
use crate::task_matcher::TaskMatcher;

/// Number of shards that executions are spread over. Every process that uses a store must use the
/// same number.
pub const SHARD_COUNT: u32 = 8;

/// Shard of a root execution, derived from its id. Children and successors run in the shard of
/// their first ancestor instead.
pub fn shard_of(execution: &ExecutionId) -> ShardId {
    ShardId(u32::from(execution.as_bytes()[0]) % SHARD_COUNT)
}

/// Result of starting an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedExecution {
    /// The execution that was started, or that the idempotency key had started before.
    pub execution: ExecutionId,
    /// Whether the idempotency key had already started this execution.
    pub already_existed: bool,
}

/// Reason why a client operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
    /// No function of this name is deployed in the scope.
    #[error("function {0} not found: deploy a component that exports it")]
    FunctionNotFound(String),
    /// The function is a task, which only a workflow can invoke.
    #[error("{0} is a task: only workflows can be started, tasks are invoked by workflows")]
    NotAWorkflow(String),
    /// No execution has this id in the scope.
    #[error("execution {0} not found")]
    ExecutionNotFound(ExecutionId),
    /// The execution has ended, so it accepts no more messages.
    #[error("execution {0} is over")]
    ExecutionEnded(ExecutionId),
    /// The function is deployed as part of a component, so workers cannot perform it.
    #[error("function {0} is deployed in a component: workers cannot claim its tasks")]
    FunctionDeployed(String),
    /// The name of a function has a character that a terminal would interpret.
    #[error(
        "invalid function name \"{0}\": it has control characters or characters that change the direction of text"
    )]
    UnprintableFunctionName(String),
    /// Other components have some of the names of a component's functions.
    #[error(
        "the component would take over functions of another component: {}; deploy it with --replace (HTTP: replace=true) if it should",
        join_takeovers(.0)
    )]
    FunctionsTaken(Vec<FunctionTakeover>),
    /// The claim token is not valid: the worker does not hold the task.
    #[error(
        "claim token is no longer valid: the task completed, was cancelled, or its lease expired and another worker has it"
    )]
    LeaseLost,
    /// The idempotency key has already started this execution with a different input.
    #[error("idempotency key already used: it started execution {0} with another input")]
    IdempotencyKeyConflict(ExecutionId),
    /// The execution has too many signals, or too large ones, that it has not consumed.
    #[error(
        "execution {execution} has {found} it has not consumed, the limit is {limit}: send the signal again \
         once it has consumed some"
    )]
    SignalsFull {
        /// The execution that the signal was sent to.
        execution: ExecutionId,
        /// What there is too much of.
        found: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// An input, signal payload or result exceeds the size limit.
    #[error("payload of {found} bytes exceeds the limit of {limit} bytes")]
    PayloadTooLarge {
        /// Size of the payload in bytes.
        found: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
}

fn join_takeovers(taken: &[FunctionTakeover]) -> String {
    let taken: Vec<String> = taken.iter().map(ToString::to_string).collect();
    taken.join(", ")
}

/// Client that reads and changes executions through their store, within one scope.
#[derive(Clone)]
pub struct EngineClient {
    store: Arc<dyn Store>,
    scope: Scope,
    limits: ExecutionLimits,
    hub: Option<Arc<LocalHub>>,
    claim_rotation: Arc<AtomicUsize>,
}

impl EngineClient {
    /// Creates a client for the executions and functions that `scope` owns.
    pub fn new(store: Arc<dyn Store>, scope: Scope) -> Self {
        Self {
            store,
            scope,
            limits: ExecutionLimits::default(),
            hub: None,
            claim_rotation: Arc::default(),
        }
    }

    /// Connects the client to a node of this process: the client notifies the node directly,
    /// instead of leaving it to find the change in the store a little later.
    #[must_use]
    pub fn with_local_node(self, node: &Node) -> Self {
        Self {
            hub: Some(node.local_hub()),
            ..self
        }
    }

    /// Returns a copy of this client for another scope.
    #[must_use]
    pub fn with_scope(&self, scope: Scope) -> Self {
        Self {
            scope,
            ..self.clone()
        }
    }

    pub(crate) const fn local_hub(&self) -> Option<&Arc<LocalHub>> {
        self.hub.as_ref()
    }

    /// The matcher of the workers that wait for tasks in this process; an empty one if no local
    /// node is connected.
    pub(crate) fn task_matcher(&self) -> Arc<TaskMatcher> {
        self.hub
            .as_ref()
            .map_or_else(Arc::default, |hub| Arc::clone(&hub.task_matcher))
    }

    /// Returns a different number on each call, to rotate the function that a claim scans first.
    pub(crate) fn next_claim_rotation(&self) -> usize {
        self.claim_rotation.fetch_add(1, Ordering::Relaxed)
    }

    /// Notifies the owner of a shard: directly if it is in this process, otherwise through the
    /// store.
    pub(crate) fn notify_shard(&self, shard: ShardId, note: ShardHint) {
        let is_here = self
            .hub
            .as_ref()
            .is_some_and(|hub| hub.send_hint(shard, note));
        if !is_here {
            self.store
                .notify(Notification::ShardWork(shard).to_string());
        }
    }

    /// The store that this client reads and writes.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The scope whose executions and functions this client can see.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn check_payload_size(&self, payload: &Payload) -> Result<(), ClientError> {
        let (found, limit) = (payload.as_str().len(), self.limits.payload_bytes_max);
        if found > limit {
            Err(ClientError::PayloadTooLarge { found, limit })
        } else {
            Ok(())
        }
    }
}

/// Returns a unique random key.
pub(crate) fn random_key() -> String {
    key_from_entropy(&mut fill_os_entropy)
}

/// Encodes 16 bytes of the given entropy source as a hexadecimal key.
pub(crate) fn key_from_entropy(entropy: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; 16];
    entropy(&mut bytes);
    onward_base::hex::encode_hex(&bytes)
}

/// Fills `bytes` with entropy from the operating system; aborts the process if there is none.
pub(crate) fn fill_os_entropy(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        tracing::error!(%error, "the operating system has no entropy");
        std::process::abort();
    }
}
