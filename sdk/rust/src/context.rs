//! The context of a running function.

use crate::callable::{Callable, InputOf, OutputOf};
use crate::function::{Function, Workflow};
use crate::payload::CallArgument;
use crate::{Error, Result, host};

/// The context of a running function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallContext {
    /// Id of the execution; for a task, of the execution that called it.
    pub execution: String,
    /// Id of the operation that this call performs, equal for every attempt: the idempotency key of
    /// its side effects. Empty for an execution without a parent.
    pub idempotency_key: String,
    /// Number of the attempt; the first is 1.
    pub attempt: u32,
}

/// Returns the context of the running function.
pub fn call_context() -> CallContext {
    host::call_context()
}

/// Whether cancellation of this workflow was requested.
pub fn is_cancelled() -> bool {
    host::is_cancelled()
}

/// Ends this execution and starts a successor of the same workflow with this input, so that the
/// journal does not grow without bound. Signals that were not consumed pass to the successor.
///
/// It takes effect when the workflow returns, so return what this returns:
///
/// ```
/// # use onward::prelude::*;
/// #[workflow]
/// fn countdown(left: u64) -> Result<u64> {
///     if left == 0 { Ok(0) } else { continue_as_new(countdown, left - 1) }
/// }
/// ```
pub fn continue_as_new<F, A>(
    _workflow: F,
    input: impl CallArgument<InputOf<F, A>>,
) -> Result<OutputOf<F, A>>
where
    F: Callable<A, Function: Workflow>,
{
    let (running, _) = host::running_function();
    if running != F::Function::NAME {
        let message = format!(
            "{running} cannot continue as {}: a workflow continues as itself",
            F::Function::NAME
        );
        return Err(Error::other(message).non_retryable());
    }
    host::continue_as_new(&input.into_payload()?);
    Err(Error::new(
        "continued_as_new",
        "this execution continues as a new one",
    ))
}
