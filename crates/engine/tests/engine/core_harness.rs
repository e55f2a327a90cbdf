//! A shard core with a single execution; tests pass its inputs directly.

use std::sync::Arc;

use onward_base::Timestamp;
use onward_engine::shard::{
    AttemptEnd, AttemptId, AttemptReporter, FunctionResolver, ShardAction, ShardCore, ShardInput,
    ShardOptions, TaskAttempt, signal_message,
};
use onward_engine::task_matcher::TaskMatcher;
use onward_execution::{Execution as InMemory, ExecutionLimits, ExecutionStart};
use onward_journal::{ComponentDigest, ExecutionId, ExecutionState, codec};
use onward_store::tables::{ExecutionRow, InboxMessageRow};
use onward_store::{Commit, CommitReceipt, Error, SerialId, ShardEpoch, ShardId};

use crate::script_runtime::json;

pub(crate) fn digest() -> ComponentDigest {
    ComponentDigest::from_component(b"alone")
}

pub(crate) struct CoreHarness(ShardCore);

impl CoreHarness {
    /// Starts the execution. Returns the actions of the start as well.
    pub(crate) fn begin(functions: impl FunctionResolver + 'static) -> (Self, Vec<ShardAction>) {
        Self::begin_with(functions, Arc::default())
    }

    /// Like `begin`, with a matcher that workers wait at.
    pub(crate) fn begin_with(
        functions: impl FunctionResolver + 'static,
        matcher: Arc<TaskMatcher>,
    ) -> (Self, Vec<ShardAction>) {
        let (id, now) = (ExecutionId::from_bytes([7; 32]), Timestamp::EPOCH);
        let start = ExecutionStart {
            component_digest: digest(),
            input: json("1"),
            parent: None,
            key: None,
            signals: Vec::new(),
        };
        let execution =
            Box::new(InMemory::start(id, start, now, ExecutionLimits::default()).unwrap());
        let entropy = Box::new(|bytes: &mut [u8]| bytes.fill(1));
        let core = ShardCore::new(
            ShardId(0),
            ShardEpoch(1),
            Arc::new(functions),
            entropy,
            ShardOptions::default(),
        );
        let mut core = Self(core.with_task_matcher(matcher));
        let actions = core.handle_input(ShardInput::StartRequested {
            row: row(),
            execution,
        });
        (core, actions)
    }

    fn handle_input(&mut self, input: ShardInput) -> Vec<ShardAction> {
        self.0.handle_input(input, Timestamp::EPOCH)
    }

    pub(crate) fn committed(&mut self, ticket: u64) -> Vec<ShardAction> {
        self.handle_input(ShardInput::Committed {
            ticket,
            result: Ok(CommitReceipt::default()),
        })
    }

    pub(crate) fn failed(&mut self, ticket: u64, error: Error) -> Vec<ShardAction> {
        self.handle_input(ShardInput::Committed {
            ticket,
            result: Err(error),
        })
    }

    /// Delivers a signal to the execution, the same one each time.
    pub(crate) fn signalled(&mut self) -> Vec<ShardAction> {
        let (id, now) = (ExecutionId::from_bytes([7; 32]), Timestamp::EPOCH);
        let signal =
            signal_message(id, ShardId(0), "go".parse().unwrap(), json("1"), None, now).unwrap();
        self.handle_input(ShardInput::Messages(vec![(
            InboxMessageRow {
                message_id: SerialId(Some(1)),
                ..signal
            },
            1,
        )]))
    }

    /// Ends the attempt with its input as result.
    pub(crate) fn ended(&mut self, attempt: &TaskAttempt) -> Vec<ShardAction> {
        self.ended_with(attempt, attempt.input.as_str())
    }

    pub(crate) fn ended_with(&mut self, attempt: &TaskAttempt, result: &str) -> Vec<ShardAction> {
        let by = AttemptReporter::Owner(attempt.dispatch_id);
        self.handle_input(ShardInput::AttemptsEnded(vec![AttemptEnd {
            attempt: attempt.id,
            reported_by: by,
            result: Ok(json(result)),
        }]))
    }

    /// Ends all of the attempts with the result 1.
    pub(crate) fn ended_together(&mut self, attempts: &[TaskAttempt]) -> Vec<ShardAction> {
        let end = |attempt: &TaskAttempt| {
            let by = AttemptReporter::Owner(attempt.dispatch_id);
            AttemptEnd {
                attempt: attempt.id,
                reported_by: by,
                result: Ok(json("1")),
            }
        };
        self.handle_input(ShardInput::AttemptsEnded(
            attempts.iter().map(end).collect(),
        ))
    }

    /// A worker reports that the attempt returned 1.
    pub(crate) fn reported(&mut self, attempt: AttemptId) -> Vec<ShardAction> {
        self.handle_input(ShardInput::AttemptsEnded(vec![AttemptEnd {
            attempt,
            reported_by: AttemptReporter::Worker,
            result: Ok(json("1")),
        }]))
    }

    /// Loads the execution as this commit has stored it.
    pub(crate) fn loaded(&mut self, commit: &Commit) -> Vec<ShardAction> {
        let append = &commit.journals[0];
        let events = codec::decode_record(append.execution, &append.records).unwrap();
        self.handle_input(ShardInput::Loaded {
            row: row(),
            version: 1,
            events,
        })
    }
}

fn row() -> Box<ExecutionRow> {
    Box::new(ExecutionRow {
        execution_id: ExecutionId::from_bytes([7; 32]),
        tenant_id: "acme".parse().unwrap(),
        project_id: "shop".parse().unwrap(),
        environment_id: "prod".parse().unwrap(),
        shard: ShardId(0),
        function: "alone".into(),
        component_digest: digest(),
        start_key: None,
        state: ExecutionState::Running,
        wake_at: Timestamp::EPOCH,
        created_at: Timestamp::EPOCH,
        body: [].into(),
    })
}

/// The commits among actions.
pub(crate) fn commits(actions: &[ShardAction]) -> Vec<(u64, &Commit)> {
    actions
        .iter()
        .filter_map(|action| match action {
            ShardAction::Commit { ticket, commit } => Some((*ticket, &**commit)),
            _ => None,
        })
        .collect()
}

/// The attempts to perform among actions.
pub(crate) fn attempts(actions: &[ShardAction]) -> Vec<TaskAttempt> {
    actions
        .iter()
        .filter_map(|action| match action {
            ShardAction::Perform(attempt) => Some((**attempt).clone()),
            _ => None,
        })
        .collect()
}

/// The names of the events that a commit appends.
pub(crate) fn events(commit: &Commit) -> Vec<String> {
    let events = commit
        .journals
        .iter()
        .flat_map(|append| codec::decode_record(append.execution, &append.records).unwrap());
    events
        .map(|recorded| recorded.event.kind().to_string())
        .collect()
}
