//! Errors that explain to the author of a guest why it stopped before it returned.

use onward_base::SharedText;
use onward_journal::{ErrorKind, ExecutionError};
use thiserror::Error;
use wasmtime::Trap;

use crate::host::GuestState;
use crate::memory_budget::MemoryBudgetExhausted;

/// Stops a guest with a specific failure. Returned by host functions whose interface has no error
/// result.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct GuestStop(pub(crate) ExecutionError);

/// Creates a failure of a kind that this crate defines. It is permanent, because the same call
/// would fail in the same way.
pub(crate) fn permanent_error(kind: &str, message: impl Into<SharedText>) -> ExecutionError {
    ExecutionError::from_kind_name(kind, message).into_permanent()
}

/// Failure of a payload that exceeds its size limit.
pub(crate) fn too_large_error(what: &str, bytes: usize, bytes_max: usize) -> ExecutionError {
    permanent_error(
        "too_large",
        format!("{what} has {bytes} bytes, the limit is {bytes_max}"),
    )
}

/// Failure of a guest that trapped or violated a rule of its environment.
pub(crate) fn trap_error(message: impl Into<SharedText>) -> ExecutionError {
    ExecutionError::new(ErrorKind::Trap, message)
}

/// Failure caused by the host, not by the guest: the engine violated the protocol.
pub(crate) fn host_defect_error(what: impl std::fmt::Display) -> ExecutionError {
    trap_error(format!("a bug in the host: {what}"))
}

/// Converts the error of a call into the failure that is recorded, with the panic message and the
/// refused growth, if any.
pub(crate) fn explain_call_error(error: &wasmtime::Error, data: &GuestState) -> ExecutionError {
    if let Some(GuestStop(error)) = error.downcast_ref() {
        return error.clone();
    }
    if let Some(exhausted) = error.downcast_ref::<MemoryBudgetExhausted>() {
        // Retryable: there may be room later.
        return ExecutionError::from_kind_name("out_of_memory", exhausted.to_string());
    }
    let mut message = match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => "unreachable code was reached".to_owned(),
        Some(Trap::StackOverflow) => "the call stack is exhausted".to_owned(),
        Some(Trap::OutOfFuel) => "it ran out of fuel".to_owned(),
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

/// Whether instantiation failed for lack of resources and not because of the component, which was
/// instantiated successfully once when it was loaded.
pub(crate) fn is_resource_exhaustion(error: &wasmtime::Error, data: &GuestState) -> bool {
    !error.is::<GuestStop>() && !error.is::<Trap>() && data.limiter.refused_growth().is_none()
}
