//! The core of a shard: which executions are in memory, what is committed for them, and which tasks run.
//!
//! It performs nothing. It is handed what happened and answers with what to do: commits, tasks, loads. Whoever performs
//! that hands the outcome back. So the same core runs on a real store and in a simulation that crashes it at every step.
//!
//! An execution has one commit under way at most. Meanwhile it runs ahead: what happens is taken in, the guest goes on, and all
//! of it goes into the next commit. Nothing of that can be seen outside: no task starts before the commit that records it is
//! durable, except one that reaches nobody; no message is sent, no child starts, no end is told. What is in memory beyond the
//! last durable commit is thrown away when a commit fails: the store is the truth, memory is a copy.

mod active_execution;
mod commits;
mod drain;
mod message;
mod shard_core;
mod step;
pub(crate) mod task_row;
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
pub(crate) use message::{
    attempt_result_message as result_message, decode_message as message_event, is_consumed,
};
pub use message::{cancel_message, signal_message};

/// Where functions come from.
pub trait FunctionResolver: Send + Sync {
    /// A new guest that runs the function of an execution.
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable>;

    /// How many guests there is room for besides those that are there.
    fn guest_capacity(&self) -> usize {
        usize::MAX
    }

    /// What `function` is to an execution that invokes it.
    fn resolve_function(&self, caller: FunctionCaller<'_>, function: &str) -> ResolvedFunction;

    /// Which hosts `function`, as the caller's environment knows it, may send requests to.
    fn allowed_hosts(&self, caller: FunctionCaller<'_>, function: &str) -> AllowedHosts;
}

/// Who asks what a name stands for.
#[derive(Debug, Clone, Copy)]
pub struct FunctionCaller<'a> {
    /// The code of the execution.
    pub component: ComponentDigest,
    /// Whose it is, by [`owner`].
    pub owner: &'a str,
}

/// Tenant, project and environment in one. None of them has a `|`, so no two owners are the same.
pub fn owner_key(
    tenant: &TenantId,
    project: &ProjectId,
    environment: &EnvironmentId,
) -> SharedText {
    format!("{tenant}|{project}|{environment}").into()
}

/// What a guest begins with.
#[derive(Debug, Clone)]
pub struct GuestEntry<'a> {
    /// The execution that it runs.
    pub execution: &'a Row,
    /// What it is called with.
    pub input: &'a Payload,
    /// The operation of another execution that it performs, and as which attempt.
    pub parent: Option<(PromiseId, u32)>,
}

impl<'a> GuestEntry<'a> {
    /// What the guest of this execution begins with, if its journal has begun.
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

/// The operation of another execution that this one performs, and as which attempt.
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

/// Why there is no guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestUnavailable {
    /// Reading the execution again brings it there.
    #[error("its code is not in memory")]
    CodeNotLoaded,
    /// Others have to end or to be put aside.
    #[error("there is no room for another guest now")]
    NoCapacity,
    /// It cannot be run, and why.
    #[error("its code cannot be run: {0}")]
    BrokenCode(String),
}

/// Patterns of hosts that requests may go to.
pub type AllowedHosts = Arc<[SharedText]>;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedFunction {
    /// A workflow of this component.
    Workflow(ComponentDigest),
    /// A task of this component.
    Task(ComponentDigest),
    /// A task that the process itself performs.
    Native,
    /// A task that workers ask for.
    Worker,
    /// Nothing.
    Unknown,
}

/// Something that happened.
#[derive(Debug)]
pub enum ShardInput {
    /// An execution as it is stored.
    Loaded {
        /// Its row.
        row: Box<Row>,
        /// The version of the row.
        version: u64,
        /// Its journal.
        events: Vec<JournalEvent>,
    },
    /// An execution that is to be started: its first step and its start are one commit.
    StartRequested {
        /// Its row, which is not stored.
        row: Box<Row>,
        /// Its beginning, which is not stored.
        execution: Box<Execution>,
    },
    /// There is no such execution.
    NotFound(ExecutionId),
    /// An execution could not be loaded.
    LoadFailed {
        /// Which.
        execution: ExecutionId,
        /// Why.
        error: Error,
    },
    /// Messages from the inbox, with their versions. The same one may come several times.
    Messages(Vec<(InboxMessageRow, u64)>),
    /// Attempts of tasks ended.
    AttemptsEnded(Vec<AttemptEnd>),
    /// A commit ended.
    Committed {
        /// Which.
        ticket: u64,
        /// With what.
        result: Result<CommitReceipt, Error>,
    },
    /// Time has passed.
    Tick,
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    /// Which.
    pub attempt: AttemptId,
    /// Who says so.
    pub reported_by: AttemptReporter,
    /// With what.
    pub result: InvokeResult,
}

/// Who performed an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptReporter {
    /// The owner of the shard, and in which performance.
    Owner(u64),
    /// A worker, which is told whether its word was taken.
    Worker,
}

/// Something to do.
#[derive(Debug)]
pub enum ShardAction {
    /// Commit this and tell how it ended.
    Commit {
        /// What to name it by.
        ticket: u64,
        /// What becomes true together.
        commit: Box<Commit>,
    },
    /// Read an execution from the store.
    Load(ExecutionId),
    /// The same, after a pause.
    LoadLater(ExecutionId),
    /// Look into the inbox.
    ReadInbox,
    /// Perform an attempt and tell how it ended.
    Perform(Box<TaskAttempt>),
    /// Nobody waits for this attempt any more.
    AbortAttempt(AttemptId),
    /// There are tasks for workers: of which function, and whose.
    AnnounceTasks {
        /// Whose they are, by [`owner`].
        owner: SharedText,
        /// The functions, one for each task.
        functions: Vec<SharedText>,
        /// How many of the tasks are not first attempts.
        repeated: u64,
    },
    /// A task is stored as claimed by somebody who waits for one: hand it over, or give it back.
    DeliverTask {
        /// Who.
        slot: ClaimSlot,
        /// What.
        task: Box<LeasedTask>,
    },
    /// Tasks that may be stored as claimed, by a worker that does not hear of them: which, and by which claim.
    ReclaimTasks(Vec<(AttemptId, SharedText)>),
    /// What became of the end of a task that a worker has told.
    WorkerResultSettled {
        /// Which attempt.
        attempt: AttemptId,
        /// Whether it is recorded, durably. Else the attempt was not under way any more.
        is_recorded: bool,
    },
    /// Things that have ended, durably, for whoever follows executions as traces.
    ExportSpans(Vec<trace_span::TraceSpan>),
    /// Whether an attempt was performed is not known, and it must not be repeated.
    InDoubt(AttemptId),
    /// A guest said something.
    Log {
        /// Which execution's.
        execution: ExecutionId,
        /// How important it is.
        level: onward_execution::GuestLogLevel,
        /// What.
        message: SharedText,
    },
    /// What became of an execution that was to be started.
    StartSettled {
        /// Which.
        execution: ExecutionId,
        /// Whether it is stored; nothing if its first step takes too long for whoever waits: start it without.
        result: Option<Result<(), Error>>,
    },
    /// An execution is over, durably.
    ExecutionOver {
        /// Which.
        execution: ExecutionId,
        /// How it ended.
        ending: ExecutionOutcome,
    },
    /// An execution cannot go on, and why. It stays as it is stored, and is tried again after a while.
    ExecutionStuck {
        /// Which.
        execution: ExecutionId,
        /// Why.
        reason: String,
    },
    /// Another node owns the shard. There is nothing more to do here.
    ShardLost,
}

/// Which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId {
    /// The execution that wants it.
    pub execution: ExecutionId,
    /// The operation.
    pub number: u32,
    /// 1 is the first.
    pub attempt: u32,
}

impl AttemptId {
    /// The operation, the same for every attempt: what effects are performed under.
    pub fn promise_id(&self) -> PromiseId {
        self.execution.child_promise(self.number)
    }
}

/// An attempt of a task.
#[derive(Debug, Clone)]
pub struct TaskAttempt {
    /// Which.
    pub id: AttemptId,
    /// Which performance of it: one that was thrown away may be performed again, with another input.
    pub dispatch_id: u64,
    /// A function, or an HTTP request.
    pub kind: InvokeKind,
    /// What the name stands for; meaningless for a request.
    pub resolved: ResolvedFunction,
    /// The name.
    pub function: BoundedName,
    /// What it is called with.
    pub input: Payload,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// Whether it may be repeated after a crash.
    pub delivery: DeliveryGuarantee,
    /// Which hosts it may send requests to.
    pub hosts: AllowedHosts,
    /// On whose behalf: the tenant, the project and the environment.
    pub owner: SharedText,
}

impl TaskAttempt {
    /// Whether nobody outside can tell that it was performed: code that may send no requests, and may be repeated.
    pub fn is_side_effect_free(&self) -> bool {
        let is_code =
            self.kind == InvokeKind::Function && matches!(self.resolved, ResolvedFunction::Task(_));
        is_code && self.hosts.is_empty() && self.delivery == DeliveryGuarantee::AtLeastOnce
    }
}
