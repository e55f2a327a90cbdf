//! The types that describe workflows and tasks.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Outcome;
use crate::payload::{decode, encode};
use crate::{Error, Result};

/// Whether a function is a workflow or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// Durable: replayed after a crash; may call other functions.
    Workflow,
    /// A leaf with side effects, which runs at least once.
    Task,
}

/// Description of a workflow or a task, implemented by the type that `#[workflow]` or `#[task]`
/// adds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a workflow nor a task",
    note = "put #[workflow] or #[task] on the function"
)]
pub trait Function: 'static {
    /// The input: its argument, or the tuple of its arguments.
    type Input: Serialize + DeserializeOwned + 'static;
    /// The result when it succeeds.
    type Output: Serialize + DeserializeOwned + 'static;
    /// The name in journals.
    const NAME: &'static str;
    /// Whether it is a workflow or a task.
    const KIND: FunctionKind;

    /// Runs the function directly, without a record.
    fn run(input: Self::Input) -> Result<Self::Output>;

    /// JSON schema of the input, if the attribute requests one.
    fn schema() -> Option<String> {
        None
    }
}

/// A function made by `#[workflow]`.
pub trait Workflow: Function {}

/// A function made by `#[task]`.
pub trait Task: Function {}

/// A return type of a workflow or a task.
#[diagnostic::on_unimplemented(
    message = "a workflow or a task returns a Result, not `{Self}`",
    note = "return onward::Result<T>, or a Result whose error is an error"
)]
pub trait FunctionResult {
    /// The success value.
    type Output;
    /// The error.
    type Error: Into<Error>;

    /// Converts it into a standard result.
    fn into_std(self) -> Result<Self::Output, Self::Error>;

    /// Converts it into a result with the error type of the SDK.
    fn into_result(self) -> Result<Self::Output>
    where
        Self: Sized,
    {
        self.into_std().map_err(Into::into)
    }
}

impl<T, E: Into<Error>> FunctionResult for Result<T, E> {
    type Output = T;
    type Error = E;

    fn into_std(self) -> Self {
        self
    }
}

/// A function without its types: an entry of the component's table.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct FunctionEntry {
    pub(crate) name: &'static str,
    pub(crate) kind: FunctionKind,
    pub(crate) run: fn(&str) -> Outcome,
    #[cfg_attr(
        not(target_arch = "wasm32"),
        expect(dead_code, reason = "only a component describes itself")
    )]
    pub(crate) schema: fn() -> Option<String>,
}

impl FunctionEntry {
    /// The entry of this function.
    pub const fn of<F: Function>() -> Self {
        Self {
            name: F::NAME,
            kind: F::KIND,
            run: run_encoded::<F>,
            schema: F::schema,
        }
    }
}

fn run_encoded<F: Function>(input: &str) -> Outcome {
    encode(&F::run(decode(input)?)?)
}
