//! Why a guest stopped before it returned, in words for whoever wrote it.

use onward_base::SharedText;
use onward_journal::{ErrorKind, ExecutionError};
use thiserror::Error;
use wasmtime::Trap;

use crate::host::GuestState;

/// Stops a guest with a failure of its own kind. Host functions that cannot return a failure return this.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct GuestStop(pub(crate) ExecutionError);

/// A failure of a kind that this crate names. It is final: the same call would fail the same way.
pub(crate) fn permanent_error(kind: &str, message: impl Into<SharedText>) -> ExecutionError {
    ExecutionError::from_kind_name(kind, message).into_permanent()
}

/// A payload is larger than the limit.
pub(crate) fn too_large_error(what: &str, bytes: usize, bytes_max: usize) -> ExecutionError {
    permanent_error(
        "too_large",
        format!("{what} has {bytes} bytes, the limit is {bytes_max}"),
    )
}

/// The guest did what it must not.
pub(crate) fn trap_error(message: impl Into<SharedText>) -> ExecutionError {
    ExecutionError::new(ErrorKind::Trap, message)
}

/// The engine broke the protocol, not the guest.
pub(crate) fn host_defect_error(what: impl std::fmt::Display) -> ExecutionError {
    trap_error(format!("a defect of the host: {what}"))
}

/// What the error of a call amounts to.
pub(crate) fn explain_call_error(error: &wasmtime::Error, data: &GuestState) -> ExecutionError {
    if let Some(GuestStop(error)) = error.downcast_ref() {
        return error.clone();
    }
    let mut message = match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => "unreachable code was reached".to_owned(),
        Some(Trap::StackOverflow) => "the call stack is exhausted".to_owned(),
        Some(Trap::OutOfFuel) => "it ran for too long".to_owned(),
        Some(trap) => trap.to_string(),
        None => format!("{error:#}"),
    };
    if let Some(line) = data.panic_message() {
        message = format!("{message}: {line}");
    }
    if let Some(refused) = data.limiter.refused_growth() {
        message = format!("{message} (it was refused {refused})");
    }
    trap_error(message)
}

/// Whether an instance could not be made for reasons that are not the component's: it was made once when it was loaded.
pub(crate) fn is_resource_exhaustion(error: &wasmtime::Error, data: &GuestState) -> bool {
    !error.is::<GuestStop>() && !error.is::<Trap>() && data.limiter.refused_growth().is_none()
}
