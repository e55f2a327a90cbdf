//! Having something done: a call is made of what and how, then waited for or not.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::callable::{Callable, InputOf, OutputOf};
use crate::function::{Entry, Function};
use crate::host::{self, Delivery, Invocation, Local, Target, milliseconds};
use crate::payload::{Argument, encode};
use crate::promise::Promise;
use crate::retry::Retry;
use crate::{Error, Result};

/// Has a workflow or a task done, and waits for it: `invoke(fetch_user, 42)?`.
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
    input: impl Argument<InputOf<F, A>>,
) -> Result<OutputOf<F, A>> {
    call(function, input).run()
}

/// Has a workflow or a task done, and does not wait for it.
pub fn schedule<F: Callable<A>, A>(
    function: F,
    input: impl Argument<InputOf<F, A>>,
) -> Result<Promise<OutputOf<F, A>>> {
    call(function, input).schedule()
}

/// A call of a workflow or a task, to say more about before it is made.
///
/// ```
/// # use onward::prelude::*;
/// # #[task] fn fetch(id: u64) -> Result<String> { Ok(id.to_string()) }
/// # #[workflow]
/// # fn example() -> Result<String> {
/// call(fetch, 42).retry(Retry::attempts(3)).timeout(Duration::from_secs(5)).run()
/// # }
/// ```
pub fn call<F: Callable<A>, A>(
    _function: F,
    input: impl Argument<InputOf<F, A>>,
) -> Call<OutputOf<F, A>> {
    let entry = Entry::of::<F::Function>();
    Call::new(
        Target::Function(F::Function::NAME.to_owned()),
        input.into_payload(),
        Some(entry),
    )
}

/// A call of a workflow or a task whose name is known only when the workflow runs.
pub fn call_named<T: DeserializeOwned>(name: &str, input: &impl Serialize) -> Call<T> {
    Call::new(Target::Function(name.to_owned()), encode(input), None)
}

/// Something to be done, and how. Nothing happens before [`run`](Self::run) or
/// [`schedule`](Self::schedule).
#[must_use = "nothing happens before run() or schedule()"]
pub struct Call<T> {
    /// An input that cannot be written is reported when the call is made.
    invocation: Result<Invocation, Error>,
    local: Local,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Call<T> {
    pub(crate) fn new(target: Target, input: Result<String>, local: Local) -> Self {
        let invocation = input.map(|input| Invocation {
            target,
            input,
            retry: None,
            timeout_ms: None,
            delivery: Delivery::AtLeastOnce,
        });
        Self {
            invocation,
            local,
            output: PhantomData,
        }
    }

    /// How it is retried. Unless said, there are ten attempts of a task, of a request and of a
    /// child workflow alike: a second after the first, doubling up to a minute, shortened by up to
    /// a tenth. A failure that is [`permanent`](Error::permanent) is not retried.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|invocation| invocation.retry = Some(retry))
    }

    /// How long one attempt may take; then it fails with `timeout`, which may be retried. Unless
    /// said, a task has a minute, a request half of one, a child workflow and a worker all the time
    /// they want. A child workflow that takes longer is asked to stop, and nobody waits for its
    /// cleanup.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|invocation| invocation.timeout_ms = Some(milliseconds(limit)))
    }

    /// Never repeated where nobody knows its end: after a crash, or without an answer, it fails
    /// with `in_doubt`, for good. One that answered with a failure is retried all the same; say
    /// [`Retry::never`] if it must not be.
    pub fn at_most_once(self) -> Self {
        self.with(|invocation| invocation.delivery = Delivery::AtMostOnce)
    }

    /// Has it done, and waits for it.
    pub fn run(self) -> Result<T> {
        self.schedule()?.wait()
    }

    /// Has it done, and does not wait for it.
    pub fn schedule(self) -> Result<Promise<T>> {
        Ok(Promise::new(host::invoke(&self.invocation?, self.local)?))
    }

    fn with(mut self, change: impl FnOnce(&mut Invocation)) -> Self {
        if let Ok(invocation) = &mut self.invocation {
            change(invocation);
        }
        self
    }
}
