//! What a task of this process is told about the attempt that it makes.

use async_trait::async_trait;
use onward_engine::node::Task;
use onward_engine::shard::{Attempt, AttemptId};
use onward_journal::{ExecutionError, ExecutionId, InvokeResult, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call(AttemptId);

impl Call {
    /// The execution that wants it done.
    pub const fn execution(&self) -> ExecutionId {
        self.0.execution
    }

    /// 1 is the first.
    pub const fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// The same for every attempt: hand it to whoever performs the effect, and it is performed once.
    pub fn idempotency_key(&self) -> String {
        self.0.promise().to_string()
    }
}

/// A function that takes what it can read and returns what can be written.
pub(crate) struct Typed<F, I, O> {
    function: F,
    types: std::marker::PhantomData<fn(I) -> O>,
}

impl<F, I, O> Typed<F, I, O> {
    pub(crate) const fn new(function: F) -> Self {
        Self { function, types: std::marker::PhantomData }
    }
}

#[async_trait]
impl<F, A, I, O> Task for Typed<F, I, O>
where
    F: Fn(I, Call) -> A + Send + Sync,
    A: Future<Output = Result<O, ExecutionError>> + Send,
    I: DeserializeOwned + Send,
    O: Serialize + Send,
{
    async fn perform(&self, attempt: &Attempt) -> InvokeResult {
        let input: I = serde_json::from_str(attempt.input.as_str()).map_err(|error| wrong("input", &error))?;
        let output = (self.function)(input, Call(attempt.id)).await?;
        Payload::of(&output).map_err(|error| wrong("result", &error))
    }
}

/// Trying again does not help.
fn wrong(what: &str, error: &dyn std::error::Error) -> ExecutionError {
    ExecutionError::named(what, format!("the {what} of the task cannot be used: {error}")).permanent()
}
