//! Tasks implemented in this process, and the context of the attempt that they perform.

use async_trait::async_trait;
use onward_base::Payload;
use onward_engine::node::NativeTask;
use onward_engine::shard::{AttemptId, TaskAttempt};
use onward_journal::{ExecutionError, ExecutionId, InvokeResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Context of one attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeTaskContext(AttemptId);

impl NativeTaskContext {
    /// Id of the execution that invoked the task.
    pub const fn execution_id(&self) -> ExecutionId {
        self.0.execution
    }

    /// Number of the attempt, starting with 1.
    pub const fn attempt_number(&self) -> u32 {
        self.0.attempt
    }

    /// Idempotency key of the task, the same for every attempt. Pass it to the service that
    /// performs the side effect, so that the service can deduplicate repeated attempts.
    pub fn idempotency_key(&self) -> String {
        self.0.promise_id().to_string()
    }
}

/// A native task whose input and output are converted from and to JSON.
pub(crate) struct TypedTask<F, I, O> {
    function: F,
    types: std::marker::PhantomData<fn(I) -> O>,
}

impl<F, I, O> TypedTask<F, I, O> {
    pub(crate) const fn new(function: F) -> Self {
        Self {
            function,
            types: std::marker::PhantomData,
        }
    }
}

#[async_trait]
impl<F, A, I, O> NativeTask for TypedTask<F, I, O>
where
    F: Fn(I, NativeTaskContext) -> A + Send + Sync,
    A: Future<Output = Result<O, ExecutionError>> + Send,
    I: DeserializeOwned + Send,
    O: Serialize + Send,
{
    async fn perform_attempt(&self, attempt: &TaskAttempt) -> InvokeResult {
        let input: I = serde_json::from_str(attempt.input.as_str())
            .map_err(|error| invalid_value_error("input", &error))?;
        let output = (self.function)(input, NativeTaskContext(attempt.id)).await?;
        Payload::from_value(&output).map_err(|error| invalid_value_error("result", &error))
    }
}

/// Error of an input or a result that cannot be converted; permanent, because a retry does not
/// help.
fn invalid_value_error(what: &str, error: &dyn std::error::Error) -> ExecutionError {
    ExecutionError::from_kind_name(what, format!("invalid {what} of the task: {error}"))
        .into_permanent()
}
