//! Having something done: a call is made of what and how, then waited for or not.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::function::{Entry, Function};
use crate::host::{self, Delivery, Invocation, Local, Target, milliseconds};
use crate::payload::{Argument, encode};
use crate::promise::Promise;
use crate::retry::Retry;
use crate::{Error, Result};

/// Has a workflow or a task done, and waits for it.
///
/// The compiler knows what the function takes and returns:
///
/// ```compile_fail
/// # use onward::prelude::*;
/// # #[task] fn fetch(id: u64) -> Result<String> { Ok(id.to_string()) }
/// # #[workflow]
/// # fn example() -> Result<String> {
/// invoke::<fetch>("forty-two")
/// # }
/// ```
pub fn invoke<F: Function>(input: impl Argument<F::Input>) -> Result<F::Output> {
    call::<F>(input).run()
}

/// Has a workflow or a task done, and does not wait for it.
pub fn schedule<F: Function>(input: impl Argument<F::Input>) -> Result<Promise<F::Output>> {
    call::<F>(input).schedule()
}

/// A call of a workflow or a task, to say more about before it is made.
///
/// ```
/// # use onward::prelude::*;
/// # #[task] fn fetch(id: u64) -> Result<String> { Ok(id.to_string()) }
/// # #[workflow]
/// # fn example() -> Result<String> {
/// call::<fetch>(42).retry(Retry::attempts(3)).timeout(Duration::from_secs(5)).run()
/// # }
/// ```
pub fn call<F: Function>(input: impl Argument<F::Input>) -> Call<F::Output> {
    Call::new(Target::Function(F::NAME.to_owned()), input.into_payload(), Some(Entry::of::<F>()))
}

/// A call of a workflow or a task whose name is known only when the workflow runs.
pub fn call_named<T: DeserializeOwned>(name: &str, input: &impl Serialize) -> Call<T> {
    Call::new(Target::Function(name.to_owned()), encode(input), None)
}

/// Something to be done, and how. Nothing happens before [`run`](Self::run) or [`schedule`](Self::schedule).
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
        Self { invocation, local, output: PhantomData }
    }

    /// How it is retried, instead of the engine's default.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|invocation| invocation.retry = Some(retry))
    }

    /// How long one attempt may take; then it fails with `timeout`.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|invocation| invocation.timeout_ms = Some(milliseconds(limit)))
    }

    /// Never repeated after a crash: if that leaves its end unknown, it fails with `in_doubt`.
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
