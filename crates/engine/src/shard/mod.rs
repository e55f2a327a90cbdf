//! The core of a shard: which executions are in memory, what is committed for them, and which tasks
//! run.
//!
//! The core performs no I/O. It takes inputs (what happened) and returns actions (commits, tasks,
//! loads); the caller performs the actions and feeds the outcomes back as inputs. The same core
//! therefore runs on a real store and in a simulation that crashes it at every step.
//!
//! An execution has at most one commit in flight. Meanwhile it runs ahead: the core applies inputs
//! and runs the guest, and all of that goes into the next commit. None of it is visible outside: no
//! task starts before the commit that records it is durable, except one without side effects; no
//! message is sent, no child starts, no end is reported. State in memory beyond the last durable
//! commit is discarded when a commit fails: the store is the source of truth, memory is a copy.

mod active_execution;
mod attempts;
mod commits;
mod drain;
mod input_routing;
mod loading;
mod memory;
mod message;
mod shard_core;
mod step;
mod step_commit;
mod takeover_count;
pub mod task_row;
pub mod trace_span;

use std::sync::Arc;

use onward_base::{BoundedName, EnvironmentId, Payload, ProjectId, SharedText, TenantId};
use onward_execution::{Execution, ExecutionOutcome, Guest};
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, Event, ExecutionId, InvokeKind, InvokeResult, Journal,
    JournalEvent, PromiseId,
};
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow};
use onward_store::{Commit, CommitReceipt, Error};

use crate::task_matcher::ClaimSlot;
use crate::task_queue::LeasedTask;

pub(crate) use self::shard_core::IN_DOUBT_KIND;
pub use self::shard_core::{ShardCore, ShardEntropy, ShardOptions, in_doubt_error};
pub(crate) use message::attempt_result_message as result_message;
pub use message::{
    MessageDecodeError, cancel_message, decode_message, is_consumed, signal_message,
};

/// Resolves function names and creates guests for the core of a shard.
pub trait FunctionResolver: Send + Sync {
    /// Creates a guest that runs the function of an execution.
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable>;

    /// Number of guests that can be created in addition to the existing ones.
    fn guest_capacity(&self) -> usize {
        usize::MAX
    }

    /// Resolves `function` for an execution that invokes it.
    fn resolve_function(&self, caller: FunctionCaller<'_>, function: &str) -> ResolvedFunction;

    /// Returns the hosts to which `function`, as bound in the caller's environment, may send
    /// requests.
    fn allowed_hosts(&self, caller: FunctionCaller<'_>, function: &str) -> AllowedHosts;
}

/// The execution for which a function name is resolved.
#[derive(Debug, Clone, Copy)]
pub struct FunctionCaller<'a> {
    /// The component that the execution runs.
    pub component: ComponentDigest,
    /// The owner of the execution, as returned by [`owner_key`].
    pub owner: &'a str,
}

/// Combines tenant, project and environment into one key. None of them contains `|`, so different
/// owners have different keys.
pub fn owner_key(
    tenant: &TenantId,
    project: &ProjectId,
    environment: &EnvironmentId,
) -> SharedText {
    format!("{tenant}|{project}|{environment}").into()
}

/// The data from which a guest starts.
#[derive(Debug, Clone)]
pub struct GuestEntry<'a> {
    /// The row of the execution that the guest runs.
    pub execution: &'a Row,
    /// The input of the workflow function.
    pub input: &'a Payload,
    /// The operation of the parent execution that it performs, and the attempt number; `None` for a
    /// root execution.
    pub parent: Option<(PromiseId, u32)>,
}

impl<'a> GuestEntry<'a> {
    /// Builds the entry of an execution from its journal; `None` if the journal does not begin with
    /// the start event.
    pub fn from_journal(execution: &'a Row, journal: &'a Journal) -> Option<Self> {
        match &journal.events().first()?.event {
            Event::ExecutionStarted { input, .. } => Some(Self {
                execution,
                input,
                parent: parent_attempt(journal),
            }),
            _ => None,
        }
    }
}

/// The operation of the parent execution that this one performs, and the attempt number.
fn parent_attempt(journal: &Journal) -> Option<(PromiseId, u32)> {
    match &journal.events().first()?.event {
        Event::ExecutionStarted {
            parent_id: Some(parent),
            idempotency_key: Some(key),
            ..
        } => Some((parent.clone(), key.split('~').next()?.parse().ok()?)),
        _ => None,
    }
}

/// Reason why a guest could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestUnavailable {
    /// The code is not in memory; loading the execution again also loads its code.
    #[error("component is not loaded")]
    CodeNotLoaded,
    /// No capacity is left: other guests have to end or to be evicted first.
    #[error("no capacity for another guest now")]
    NoCapacity,
    /// The code cannot be run, with the reason.
    #[error("component cannot be run: {0}")]
    BrokenCode(String),
}

/// Patterns of hosts to which requests may be sent.
pub type AllowedHosts = Arc<[SharedText]>;

/// Result of resolving a function name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedFunction {
    /// A workflow of this component.
    Workflow(ComponentDigest),
    /// A task of this component.
    Task(ComponentDigest),
    /// A native task that this process performs.
    Native,
    /// A task that is queued for workers.
    Worker,
    /// No function has this name.
    Unknown,
}

/// Input of the core: an event or the outcome of an action.
#[derive(Debug)]
pub enum ShardInput {
    /// An execution was loaded from the store.
    Loaded {
        /// The stored row of the execution.
        row: Box<Row>,
        /// Version of the stored row.
        version: u64,
        /// The stored journal of the execution.
        events: Vec<JournalEvent>,
    },
    /// A client requests the start of an execution: the start and the first step are one commit.
    StartRequested {
        /// Row of the execution, not stored yet.
        row: Box<Row>,
        /// The execution with its start event, not stored yet.
        execution: Box<Execution>,
    },
    /// The store has no execution with this id.
    NotFound(ExecutionId),
    /// An execution could not be loaded.
    LoadFailed {
        /// The execution that could not be loaded.
        execution: ExecutionId,
        /// The error that the store returned.
        error: Error,
    },
    /// Messages from the inbox, with their row versions. The same message may be delivered several
    /// times.
    Messages(Vec<(InboxMessageRow, u64)>),
    /// Attempts of tasks ended.
    AttemptsEnded(Vec<AttemptEnd>),
    /// A commit succeeded or failed.
    Committed {
        /// Ticket of the [`ShardAction::Commit`] that requested it.
        ticket: u64,
        /// Outcome of the commit.
        result: Result<CommitReceipt, Error>,
    },
    /// Time has passed: timers may be due, and paused guests get their turn.
    Tick,
}

/// The end of an attempt, with its result.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    /// The attempt that ended.
    pub attempt: AttemptId,
    /// Source of the report.
    pub reported_by: AttemptReporter,
    /// Result of the attempt.
    pub result: InvokeResult,
}

/// Source of the report that an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptReporter {
    /// The shard owner performed the attempt, under this dispatch id.
    Owner(u64),
    /// A worker performed the attempt and waits for a reply whether its result was recorded.
    Worker,
}

/// Action that the caller of the core must perform.
#[derive(Debug)]
pub enum ShardAction {
    /// Commit to the store and feed back the outcome as [`ShardInput::Committed`].
    Commit {
        /// Identifies the commit in the input with its outcome.
        ticket: u64,
        /// The changes, which are applied atomically.
        commit: Box<Commit>,
    },
    /// Load an execution from the store.
    Load(ExecutionId),
    /// Load an execution from the store after a delay.
    LoadLater(ExecutionId),
    /// Read the inbox of the shard.
    ReadInbox,
    /// Perform an attempt and feed back its end as [`ShardInput::AttemptsEnded`].
    Perform(Box<TaskAttempt>),
    /// Abort this attempt, because its result is no longer needed.
    AbortAttempt(AttemptId),
    /// Tasks are queued for workers: notify workers that wait for them.
    AnnounceTasks {
        /// Owner of the tasks, as returned by [`owner_key`].
        owner: SharedText,
        /// Functions of the tasks, one entry per task.
        functions: Vec<SharedText>,
        /// Number of the stored tasks that are not first attempts.
        repeated: u64,
    },
    /// A task is stored as claimed by a waiting worker: deliver it, or release it if the worker is
    /// gone.
    DeliverTask {
        /// Reservation of the waiting worker.
        slot: ClaimSlot,
        /// The task to deliver.
        task: Box<LeasedTask>,
    },
    /// Release these tasks with these claim tokens: they may be stored as claimed by workers that
    /// do not learn of it.
    ReclaimTasks(Vec<(AttemptId, SharedText)>),
    /// The result that a worker reported was recorded or rejected: reply to the worker.
    WorkerResultSettled {
        /// The attempt that the worker reported.
        attempt: AttemptId,
        /// Whether the result is durably recorded. If not, the attempt was no longer in flight.
        is_recorded: bool,
    },
    /// Export spans whose end is durably stored.
    ExportSpans(Vec<trace_span::TraceSpan>),
    /// Count an attempt as in doubt: it is unknown whether it was performed, and it must not be
    /// repeated.
    InDoubt(AttemptId),
    /// Log a message of a guest.
    Log {
        /// The execution whose guest logged the message.
        execution: ExecutionId,
        /// Severity that the guest chose.
        level: onward_execution::GuestLogLevel,
        /// Text of the log message.
        message: SharedText,
    },
    /// The requested start of an execution succeeded or failed: reply to the client.
    StartSettled {
        /// The execution that was requested.
        execution: ExecutionId,
        /// Whether the execution is stored; `None` if the core did not start it, for example
        /// because its first step takes too long for the waiting client: the client then stores the
        /// start itself.
        result: Option<Result<(), Error>>,
    },
    /// An execution has ended, durably.
    ExecutionOver {
        /// The execution that ended.
        execution: ExecutionId,
        /// Outcome of the execution.
        ending: ExecutionOutcome,
    },
    /// An execution cannot make progress. Its stored state is unchanged, and the core retries it
    /// after a while.
    ExecutionStuck {
        /// The execution that is stuck.
        execution: ExecutionId,
        /// Human-readable reason.
        reason: String,
    },
    /// Another node owns the shard: the core accepts no more inputs.
    ShardLost,
}

/// Identifies one attempt of an operation of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId {
    /// The execution that invoked the operation.
    pub execution: ExecutionId,
    /// Number of the operation within the execution.
    pub number: u32,
    /// Attempt number; 1 is the first.
    pub attempt: u32,
}

impl AttemptId {
    /// The operation, the same for every attempt: the idempotency key for its side effects.
    pub fn promise_id(&self) -> PromiseId {
        self.execution.child_promise(self.number)
    }
}

/// An attempt of a task, with everything needed to perform it.
#[derive(Debug, Clone)]
pub struct TaskAttempt {
    /// Identifies the operation and the attempt.
    pub id: AttemptId,
    /// Number of this dispatch: an attempt that was discarded may be dispatched again, with another
    /// input.
    pub dispatch_id: u64,
    /// Whether it is a function or an HTTP request.
    pub kind: InvokeKind,
    /// What the function name resolved to; meaningless for an HTTP request.
    pub resolved: ResolvedFunction,
    /// Name of the function.
    pub function: BoundedName,
    /// Input of the function or request.
    pub input: Payload,
    /// Timeout in milliseconds; `None` means no timeout.
    pub timeout_ms: Option<u64>,
    /// Delivery guarantee: whether it may be repeated after a crash.
    pub delivery: DeliveryGuarantee,
    /// Hosts to which it may send requests.
    pub hosts: AllowedHosts,
    /// Owner of the execution: tenant, project and environment.
    pub owner: SharedText,
}

impl TaskAttempt {
    /// Whether performing it is invisible from outside: component code that may send no requests
    /// and may be repeated.
    pub fn is_side_effect_free(&self) -> bool {
        let is_code =
            self.kind == InvokeKind::Function && matches!(self.resolved, ResolvedFunction::Task(_));
        is_code && self.hosts.is_empty() && self.delivery == DeliveryGuarantee::AtLeastOnce
    }
}
