//! What a task of this process is told about the attempt that it makes.

use async_trait::async_trait;
use onward_base::Payload;
use onward_engine::node::NativeTask;
use onward_engine::shard::{AttemptId, TaskAttempt};
use onward_journal::{ExecutionError, ExecutionId, InvokeResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeTaskContext(AttemptId);

impl NativeTaskContext {
    /// The execution that wants it done.
    pub const fn execution_id(&self) -> ExecutionId {
        self.0.execution
    }

    /// 1 is the first.
    pub const fn attempt_number(&self) -> u32 {
        self.0.attempt
    }

    /// The same for every attempt: hand it to whoever performs the effect, and it is performed once.
    pub fn idempotency_key(&self) -> String {
        self.0.promise_id().to_string()
    }
}

/// A function that takes what it can read and returns what can be written.
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

/// Trying again does not help.
fn invalid_value_error(what: &str, error: &dyn std::error::Error) -> ExecutionError {
    ExecutionError::from_kind_name(
        what,
        format!("the {what} of the task cannot be used: {error}"),
    )
    .into_permanent()
}
