//! What the compiler knows about a workflow or a task.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Outcome;
use crate::payload::{decode, encode};
use crate::{Error, Result};

/// Whether a function is a workflow or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Durable: replayed after a crash, may call others.
    Workflow,
    /// A leaf with effects, run at least once.
    Task,
}

/// The type that `#[workflow]` or `#[task]` adds to a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of the component",
    note = "put #[workflow] or #[task] on it"
)]
pub trait Function: 'static {
    /// What it is called with: its argument, or the tuple of its arguments.
    type Input: Serialize + DeserializeOwned + 'static;
    /// What it returns when it succeeds.
    type Output: Serialize + DeserializeOwned + 'static;
    /// What it is called in journals.
    const NAME: &'static str;
    /// What it is.
    const KIND: Kind;

    /// Runs it here and now, unrecorded.
    fn run(input: Self::Input) -> Result<Self::Output>;
}

/// A function made by `#[workflow]`.
pub trait Workflow: Function {}

/// A function made by `#[task]`.
pub trait Task: Function {}

/// What a workflow or a task may return.
#[diagnostic::on_unimplemented(
    message = "a workflow or a task returns a Result, not `{Self}`",
    note = "return onward::Result<T>, or a Result whose error is an error"
)]
pub trait Returned {
    /// What is in it when all is well.
    type Output;

    /// The same with the SDK's error.
    fn into_result(self) -> Result<Self::Output>;
}

impl<T, E: Into<Error>> Returned for Result<T, E> {
    type Output = T;

    fn into_result(self) -> Result<T> {
        self.map_err(Into::into)
    }
}

/// A function without its types: a row of the component's table.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) run: fn(&str) -> Outcome,
}

impl Entry {
    /// The row of this function.
    pub const fn of<F: Function>() -> Self {
        Self { name: F::NAME, kind: F::KIND, run: run::<F> }
    }
}

fn run<F: Function>(input: &str) -> Outcome {
    encode(&F::run(decode(input)?)?)
}
