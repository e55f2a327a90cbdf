//! The host functions of a component, with the types of the SDK.

use std::cell::Cell;

use crate::bindings::onward::guest::{host, task, types, workflow};
use crate::context::CallContext;
use crate::function::{FunctionEntry, FunctionKind};
use crate::host::{
    CallTarget, Invocation, InvocationDelivery, LocalFunction, NextOutcome, Outcome,
};
use crate::http::{HttpRequest, HttpResponse};
use crate::log::LogLevel;
use crate::retry::RetryPolicy;
use crate::{Error, Result};

thread_local! {
    static RUNNING: Cell<Option<(&'static str, FunctionKind)>> = const { Cell::new(None) };
}

/// Records which function the host called.
pub(crate) fn enter_function(entry: &FunctionEntry) {
    RUNNING.set(Some((entry.name, entry.kind)));
}

pub(crate) fn running_function() -> (&'static str, FunctionKind) {
    RUNNING.get().unwrap_or(("", FunctionKind::Task))
}

/// Not `From`: failures of the bindings are standard errors, and the generic conversion would lose
/// the kind.
fn to_error(failure: types::Failure) -> Error {
    let types::Failure {
        kind,
        message,
        retryable,
    } = failure;
    Error {
        kind,
        message,
        retryable,
    }
}

pub(crate) fn call_context() -> CallContext {
    let host::Context {
        execution,
        idempotency_key,
        attempt,
    } = host::own();
    CallContext {
        execution,
        idempotency_key,
        attempt,
    }
}

pub(crate) fn log(level: LogLevel, message: &str) {
    let level = match level {
        LogLevel::Debug => host::Level::Debug,
        LogLevel::Info => host::Level::Info,
        LogLevel::Warn => host::Level::Warn,
        LogLevel::Error => host::Level::Error,
    };
    host::log(level, message);
}

pub(crate) fn now() -> i64 {
    host::now()
}

pub(crate) fn random(length: u32) -> Vec<u8> {
    host::random(length)
}

pub(crate) fn invoke(invocation: &Invocation, _: LocalFunction) -> Result<u32> {
    let target = match &invocation.target {
        CallTarget::Function(name) => workflow::Target::Function(name.clone()),
        CallTarget::Http(line) => workflow::Target::Http(line.clone()),
    };
    let options = workflow::Options {
        retry: invocation.retry.as_ref().map(to_wit_retry_policy),
        timeout_ms: invocation.timeout_ms,
        delivery: match invocation.delivery {
            InvocationDelivery::AtLeastOnce => workflow::Delivery::AtLeastOnce,
            InvocationDelivery::AtMostOnce => workflow::Delivery::AtMostOnce,
        },
    };
    workflow::invoke(&target, &invocation.input, &options).map_err(to_error)
}

fn to_wit_retry_policy(retry: &RetryPolicy) -> workflow::RetryPolicy {
    workflow::RetryPolicy {
        max_attempts: retry.max_attempts,
        initial_interval_ms: retry.initial_interval_ms,
        max_interval_ms: retry.max_interval_ms,
        factor_permille: retry.factor_permille,
        jitter_permille: retry.jitter_permille,
        non_retryable: retry.non_retryable_kinds.clone(),
    }
}

pub(crate) fn timer(duration_ms: u64) -> Result<u32> {
    workflow::timer(duration_ms).map_err(to_error)
}

pub(crate) fn await_one(promise: u32) -> Outcome {
    workflow::await_one(promise).map_err(to_error)
}

pub(crate) fn await_any(promises: &[u32]) -> Result<(u32, Outcome)> {
    let (index, outcome) = workflow::await_any(promises).map_err(to_error)?;
    Ok((index, outcome.map_err(to_error)))
}

pub(crate) fn await_all(promises: &[u32]) -> Result<Vec<Outcome>> {
    let outcomes = workflow::await_all(promises).map_err(to_error)?;
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(to_error))
        .collect())
}

pub(crate) fn new_join_set() -> Result<u32> {
    workflow::new_join_set().map_err(to_error)
}

pub(crate) fn submit(set: u32, promise: u32) -> Result<()> {
    workflow::submit(set, promise).map_err(to_error)
}

pub(crate) fn next(set: u32, timeout_ms: Option<u64>) -> Result<NextOutcome> {
    Ok(match workflow::next(set, timeout_ms).map_err(to_error)? {
        workflow::Taken::Done((promise, outcome)) => {
            NextOutcome::Done(promise, outcome.map_err(to_error))
        }
        workflow::Taken::TimedOut => NextOutcome::TimedOut,
        workflow::Taken::Empty => NextOutcome::Empty,
    })
}

pub(crate) fn close(set: u32) -> Result<()> {
    workflow::close(set).map_err(to_error)
}

pub(crate) fn await_signal(name: &str, timeout_ms: Option<u64>) -> Result<Option<String>> {
    workflow::await_signal(name, timeout_ms).map_err(to_error)
}

pub(crate) fn is_cancelled() -> bool {
    workflow::is_cancelled()
}

pub(crate) fn continue_as_new(input: &str) {
    workflow::continue_as_new(input);
}

pub(crate) fn http(request: &HttpRequest) -> Result<HttpResponse> {
    let HttpRequest {
        method,
        url,
        headers,
        body,
        timeout_ms,
    } = request.clone();
    let response = task::http(&task::Request {
        method,
        url,
        headers,
        body,
        timeout_ms,
    })
    .map_err(to_error)?;
    Ok(HttpResponse {
        status: response.status,
        headers: response.headers,
        body: response.body,
    })
}
