//! The host functions of a component, with the types of the SDK.

use std::cell::Cell;

use crate::bindings::onward::guest::{host, task, types, workflow};
use crate::context::Context;
use crate::function::{Entry, Kind};
use crate::host::{Delivery, Invocation, Local, Outcome, Taken, Target};
use crate::http::{Request, Response};
use crate::log::Level;
use crate::retry::Retry;
use crate::{Error, Result};

thread_local! {
    static RUNNING: Cell<Option<(&'static str, Kind)>> = const { Cell::new(None) };
}

/// Records which function the host called.
pub(crate) fn enter(entry: &Entry) {
    RUNNING.set(Some((entry.name, entry.kind)));
}

pub(crate) fn running() -> (&'static str, Kind) {
    RUNNING.get().unwrap_or(("", Kind::Task))
}

/// Not `From`: failures of the bindings are standard errors, and the generic conversion would lose
/// the kind.
fn failed(failure: types::Failure) -> Error {
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

pub(crate) fn own() -> Context {
    let host::Context {
        execution,
        idempotency_key,
        attempt,
    } = host::own();
    Context {
        execution,
        idempotency_key,
        attempt,
    }
}

pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => host::Level::Debug,
        Level::Info => host::Level::Info,
        Level::Warn => host::Level::Warn,
        Level::Error => host::Level::Error,
    };
    host::log(level, message);
}

pub(crate) fn now() -> i64 {
    host::now()
}

pub(crate) fn random(length: u32) -> Vec<u8> {
    host::random(length)
}

pub(crate) fn invoke(invocation: &Invocation, _: Local) -> Result<u32> {
    let target = match &invocation.target {
        Target::Function(name) => workflow::Target::Function(name.clone()),
        Target::Http(line) => workflow::Target::Http(line.clone()),
    };
    let options = workflow::Options {
        retry: invocation.retry.as_ref().map(policy),
        timeout_ms: invocation.timeout_ms,
        delivery: match invocation.delivery {
            Delivery::AtLeastOnce => workflow::Delivery::AtLeastOnce,
            Delivery::AtMostOnce => workflow::Delivery::AtMostOnce,
        },
    };
    workflow::invoke(&target, &invocation.input, &options).map_err(failed)
}

fn policy(retry: &Retry) -> workflow::RetryPolicy {
    workflow::RetryPolicy {
        max_attempts: retry.attempts_max,
        initial_interval_ms: retry.first_wait_ms,
        max_interval_ms: retry.longest_wait_ms,
        factor_permille: retry.factor_permille,
        jitter_permille: retry.jitter_permille,
        non_retryable: retry.final_kinds.clone(),
    }
}

pub(crate) fn timer(duration_ms: u64) -> Result<u32> {
    workflow::timer(duration_ms).map_err(failed)
}

pub(crate) fn await_one(promise: u32) -> Outcome {
    workflow::await_one(promise).map_err(failed)
}

pub(crate) fn await_any(promises: &[u32]) -> Result<(u32, Outcome)> {
    let (place, outcome) = workflow::await_any(promises).map_err(failed)?;
    Ok((place, outcome.map_err(failed)))
}

pub(crate) fn await_all(promises: &[u32]) -> Result<Vec<Outcome>> {
    let outcomes = workflow::await_all(promises).map_err(failed)?;
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.map_err(failed))
        .collect())
}

pub(crate) fn new_join_set() -> Result<u32> {
    workflow::new_join_set().map_err(failed)
}

pub(crate) fn submit(set: u32, promise: u32) -> Result<()> {
    workflow::submit(set, promise).map_err(failed)
}

pub(crate) fn next(set: u32, timeout_ms: Option<u64>) -> Result<Taken> {
    Ok(match workflow::next(set, timeout_ms).map_err(failed)? {
        workflow::Taken::Done((promise, outcome)) => Taken::Done(promise, outcome.map_err(failed)),
        workflow::Taken::TimedOut => Taken::TimedOut,
        workflow::Taken::Empty => Taken::Empty,
    })
}

pub(crate) fn close(set: u32) -> Result<()> {
    workflow::close(set).map_err(failed)
}

pub(crate) fn await_signal(name: &str, timeout_ms: Option<u64>) -> Result<Option<String>> {
    workflow::await_signal(name, timeout_ms).map_err(failed)
}

pub(crate) fn is_cancelled() -> bool {
    workflow::is_cancelled()
}

pub(crate) fn continue_as_new(input: &str) {
    workflow::continue_as_new(input);
}

pub(crate) fn http(request: &Request) -> Result<Response> {
    let Request {
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
    .map_err(failed)?;
    Ok(Response {
        status: response.status,
        headers: response.headers,
        body: response.body,
    })
}
