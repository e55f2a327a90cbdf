//! The host functions in a native build: requests to the [`TestEnv`](crate::testing::TestEnv) that
//! runs the function.

use crate::context::CallContext;
use crate::function::FunctionKind;
use crate::host::{Invocation, LocalFunction, NextOutcome, Outcome};
use crate::http::{HttpRequest, HttpResponse};
use crate::log::LogLevel;
use crate::testing::protocol::{HostAnswer, HostRequest};
use crate::testing::scope::{self, current_function};
use crate::{Error, Result};

pub(crate) fn running_function() -> (&'static str, FunctionKind) {
    current_function().name_and_kind()
}

pub(crate) fn call_context() -> CallContext {
    current_function().call_context()
}

pub(crate) fn log(level: LogLevel, message: &str) {
    current_function().log(level, message);
}

pub(crate) fn now() -> i64 {
    match current_function().request(HostRequest::Now, None) {
        HostAnswer::Time(micros) => micros,
        other => unexpected_answer(&other),
    }
}

pub(crate) fn random(length: u32) -> Vec<u8> {
    match current_function().request(HostRequest::Random(length), None) {
        HostAnswer::Random(bytes) => bytes,
        other => unexpected_answer(&other),
    }
}

pub(crate) fn invoke(invocation: &Invocation, local: LocalFunction) -> Result<u32> {
    expect_promise(current_function().request(HostRequest::Invoke(invocation.clone()), local))
}

pub(crate) fn timer(duration_ms: u64) -> Result<u32> {
    expect_promise(current_function().request(HostRequest::Timer(duration_ms), None))
}

pub(crate) fn await_one(promise: u32) -> Outcome {
    match current_function().request(HostRequest::AwaitOne(promise), None) {
        HostAnswer::Outcome(outcome) => outcome,
        other => Err(refusal_error(other)),
    }
}

pub(crate) fn await_any(promises: &[u32]) -> Result<(u32, Outcome)> {
    match current_function().request(HostRequest::AwaitAny(promises.to_vec()), None) {
        HostAnswer::First(index, outcome) => Ok((index, outcome)),
        other => Err(refusal_error(other)),
    }
}

pub(crate) fn await_all(promises: &[u32]) -> Result<Vec<Outcome>> {
    match current_function().request(HostRequest::AwaitAll(promises.to_vec()), None) {
        HostAnswer::Outcomes(outcomes) => Ok(outcomes),
        other => Err(refusal_error(other)),
    }
}

pub(crate) fn new_join_set() -> Result<u32> {
    expect_promise(current_function().request(HostRequest::JoinSet, None))
}

pub(crate) fn submit(set: u32, promise: u32) -> Result<()> {
    expect_done(current_function().request(HostRequest::Submit { set, promise }, None))
}

pub(crate) fn next(set: u32, timeout_ms: Option<u64>) -> Result<NextOutcome> {
    match current_function().request(HostRequest::Next { set, timeout_ms }, None) {
        HostAnswer::Taken(taken) => Ok(taken),
        other => Err(refusal_error(other)),
    }
}

pub(crate) fn close(set: u32) -> Result<()> {
    expect_done(current_function().request(HostRequest::Close(set), None))
}

pub(crate) fn await_signal(name: &str, timeout_ms: Option<u64>) -> Result<Option<String>> {
    match current_function().request(
        HostRequest::Signal {
            name: name.to_owned(),
            timeout_ms,
        },
        None,
    ) {
        HostAnswer::Signal(payload) => Ok(payload),
        other => Err(refusal_error(other)),
    }
}

pub(crate) fn is_cancelled() -> bool {
    current_function().request(HostRequest::IsCancelled, None) == HostAnswer::Flag(true)
}

pub(crate) fn continue_as_new(input: &str) {
    current_function().request(HostRequest::ContinueAsNew(input.to_owned()), None);
}

pub(crate) fn http(request: &HttpRequest) -> Result<HttpResponse> {
    current_function().http(request)
}

fn expect_promise(answer: HostAnswer) -> Result<u32> {
    match answer {
        HostAnswer::Promise(number) => Ok(number),
        other => Err(refusal_error(other)),
    }
}

fn expect_done(answer: HostAnswer) -> Result<()> {
    match answer {
        HostAnswer::Done => Ok(()),
        other => Err(refusal_error(other)),
    }
}

fn refusal_error(answer: HostAnswer) -> Error {
    match answer {
        HostAnswer::Refused(error) => error,
        other => unexpected_answer(&other),
    }
}

/// Reports a response of the wrong kind, which is a bug of the test environment.
fn unexpected_answer(answer: &HostAnswer) -> ! {
    scope::fail_test(Error::other(format!(
        "bug in the test environment: unexpected response {answer:?}"
    )))
}
