//! Why a guest stopped before it returned, in words for whoever wrote it.

use onward_journal::{ErrorKind, ExecutionError, Text};
use thiserror::Error;
use wasmtime::Trap;

use crate::host::Data;

/// Stops a guest with a failure of its own kind. Host functions that cannot return a failure return this.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Stop(pub(crate) ExecutionError);

/// A failure of a kind that this crate names. It is final: the same call would fail the same way.
pub(crate) fn named(kind: &str, message: impl Into<Text>) -> ExecutionError {
    ExecutionError::named(kind, message).permanent()
}

/// A payload is larger than the limit.
pub(crate) fn too_large(what: &str, bytes: usize, bytes_max: usize) -> ExecutionError {
    named("too_large", format!("{what} has {bytes} bytes, the limit is {bytes_max}"))
}

/// The guest did what it must not.
pub(crate) fn trap(message: impl Into<Text>) -> ExecutionError {
    ExecutionError::new(ErrorKind::Trap, message)
}

/// The engine broke the protocol, not the guest.
pub(crate) fn defect(what: impl std::fmt::Display) -> ExecutionError {
    trap(format!("a defect of the host: {what}"))
}

/// What the error of a call amounts to.
pub(crate) fn explain(error: &wasmtime::Error, data: &Data) -> ExecutionError {
    if let Some(Stop(error)) = error.downcast_ref() {
        return error.clone();
    }
    let mut message = match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => "unreachable code was reached".to_owned(),
        Some(Trap::StackOverflow) => "the call stack is exhausted".to_owned(),
        Some(Trap::OutOfFuel) => "it ran for too long".to_owned(),
        Some(trap) => trap.to_string(),
        None => format!("{error:#}"),
    };
    if let Some(line) = data.last_words() {
        message = format!("{message}: {line}");
    }
    if let Some(refused) = data.limiter.refused() {
        message = format!("{message} (it was refused {refused})");
    }
    trap(message)
}

/// Whether an instance could not be made for reasons that are not the component's: it was made once when it was loaded.
pub(crate) fn is_of_the_machine(error: &wasmtime::Error, data: &Data) -> bool {
    !error.is::<Stop>() && !error.is::<Trap>() && data.limiter.refused().is_none()
}
