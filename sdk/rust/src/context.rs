//! Where and as what a function runs.

use crate::callable::{Callable, InputOf, OutputOf};
use crate::function::{Function, Workflow};
use crate::payload::Argument;
use crate::{Error, Result, host};

/// Where and as what the function runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The execution; for a task, the one that wants it done.
    pub execution: String,
    /// The operation that this call performs, the same for every attempt: the key to send along
    /// with effects. Empty for an execution that nobody called.
    pub idempotency_key: String,
    /// 1 is the first.
    pub attempt: u32,
}

/// Where and as what this function runs.
pub fn own() -> Context {
    host::own()
}

/// Whether this workflow was told of cancellation.
pub fn is_cancelled() -> bool {
    host::is_cancelled()
}

/// Ends this execution and starts the same workflow with this input in its place, so that a journal
/// does not grow for ever. Signals that were not consumed go along.
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
    input: impl Argument<InputOf<F, A>>,
) -> Result<OutputOf<F, A>>
where
    F: Callable<A, Function: Workflow>,
{
    let (running, _) = host::running();
    if running != F::Function::NAME {
        let message = format!(
            "{running} cannot continue as {}: a workflow continues as itself",
            F::Function::NAME
        );
        return Err(Error::other(message).permanent());
    }
    host::continue_as_new(&input.into_payload()?);
    Err(Error::new(
        "continued_as_new",
        "this execution goes on as a new one",
    ))
}
