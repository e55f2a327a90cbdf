//! Calls of workflows and tasks: what to call, with which policies, and whether to wait.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::callable::{Callable, InputOf, OutputOf};
use crate::function::{Function, FunctionEntry};
use crate::host::{self, CallTarget, Invocation, InvocationDelivery, LocalFunction, milliseconds};
use crate::payload::{CallArgument, encode};
use crate::promise::Promise;
use crate::retry::RetryPolicy;
use crate::{Error, Result};

/// Calls a workflow or a task and waits for its result: `invoke(fetch_user, 42)?`.
///
/// Several arguments are a tuple, none is `()`. The compiler knows what the function takes and
/// returns:
///
/// ```compile_fail
/// # use onward::prelude::*;
/// # #[task] fn fetch(id: u64) -> Result<String> { Ok(id.to_string()) }
/// # #[workflow]
/// # fn example() -> Result<String> {
/// invoke(fetch, "forty-two")
/// # }
/// ```
pub fn invoke<F: Callable<A>, A>(
    function: F,
    input: impl CallArgument<InputOf<F, A>>,
) -> Result<OutputOf<F, A>> {
    call(function, input).run()
}

/// Calls a workflow or a task without waiting for its result.
pub fn schedule<F: Callable<A>, A>(
    function: F,
    input: impl CallArgument<InputOf<F, A>>,
) -> Result<Promise<OutputOf<F, A>>> {
    call(function, input).schedule()
}

/// Builds a call of a workflow or a task, to which policies can be added.
///
/// ```
/// # use onward::prelude::*;
/// # #[task] fn fetch(id: u64) -> Result<String> { Ok(id.to_string()) }
/// # #[workflow]
/// # fn example() -> Result<String> {
/// call(fetch, 42).retry(RetryPolicy::max_attempts(3)).timeout(Duration::from_secs(5)).run()
/// # }
/// ```
pub fn call<F: Callable<A>, A>(
    _function: F,
    input: impl CallArgument<InputOf<F, A>>,
) -> Call<OutputOf<F, A>> {
    let entry = FunctionEntry::of::<F::Function>();
    Call::new(
        CallTarget::Function(F::Function::NAME.to_owned()),
        input.into_payload(),
        Some(entry),
    )
}

/// Builds a call of a workflow or a task by name.
pub fn call_named<T: DeserializeOwned>(name: &str, input: &impl Serialize) -> Call<T> {
    Call::new(CallTarget::Function(name.to_owned()), encode(input), None)
}

/// A call with its policies. It has no effect before [`run`](Self::run) or
/// [`schedule`](Self::schedule).
#[must_use = "nothing happens before run() or schedule()"]
pub struct Call<T> {
    /// An input that cannot be serialized fails when the call is made.
    invocation: Result<Invocation, Error>,
    local: LocalFunction,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Call<T> {
    pub(crate) fn new(target: CallTarget, input: Result<String>, local: LocalFunction) -> Self {
        let invocation = input.map(|input| Invocation {
            target,
            input,
            retry: None,
            timeout_ms: None,
            delivery: InvocationDelivery::AtLeastOnce,
        });
        Self {
            invocation,
            local,
            output: PhantomData,
        }
    }

    /// Sets the retry policy. Default, for tasks, requests and child workflows: 10 attempts, 1 s
    /// backoff after the first, doubling up to 60 s, minus up to 10 % jitter. A
    /// [`non_retryable`](Error::non_retryable) failure is not retried.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.update_invocation(|invocation| invocation.retry = Some(retry))
    }

    /// Sets the timeout of one attempt; the attempt then fails with `timeout`, which is retryable.
    /// Default: 60 s for a task, 30 s for a request, none for a child workflow or a worker. A child
    /// workflow that exceeds it is cancelled, and its cleanup is not waited for.
    pub fn timeout(self, limit: Duration) -> Self {
        self.update_invocation(|invocation| invocation.timeout_ms = Some(milliseconds(limit)))
    }

    /// At-most-once delivery: an attempt whose outcome is unknown, after a crash or without an
    /// answer, is not repeated but fails with the non-retryable kind `in_doubt`. An attempt that
    /// returned a failure is still retried; use [`RetryPolicy::no_retries`] to prevent that.
    pub fn at_most_once(self) -> Self {
        self.update_invocation(|invocation| invocation.delivery = InvocationDelivery::AtMostOnce)
    }

    /// Makes the call and waits for its result.
    pub fn run(self) -> Result<T> {
        self.schedule()?.wait()
    }

    /// Makes the call without waiting for its result.
    pub fn schedule(self) -> Result<Promise<T>> {
        Ok(Promise::new(host::invoke(&self.invocation?, self.local)?))
    }

    fn update_invocation(mut self, change: impl FnOnce(&mut Invocation)) -> Self {
        if let Ok(invocation) = &mut self.invocation {
            change(invocation);
        }
        self
    }
}
