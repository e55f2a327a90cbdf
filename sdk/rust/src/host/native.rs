//! The host functions in a native build: requests to the [`TestEnv`](crate::testing::TestEnv) that
//! runs the function.

use crate::context::Context;
use crate::function::Kind;
use crate::host::{Invocation, Local, Outcome, Taken};
use crate::http::{Request, Response};
use crate::log::Level;
use crate::testing::protocol::{Answer, Ask};
use crate::testing::scope::{self, current};
use crate::{Error, Result};

pub(crate) fn running() -> (&'static str, Kind) {
    current().running()
}

pub(crate) fn own() -> Context {
    current().own()
}

pub(crate) fn log(level: Level, message: &str) {
    current().log(level, message);
}

pub(crate) fn now() -> i64 {
    match current().ask(Ask::Now, None) {
        Answer::Time(micros) => micros,
        other => unexpected(&other),
    }
}

pub(crate) fn random(length: u32) -> Vec<u8> {
    match current().ask(Ask::Random(length), None) {
        Answer::Random(bytes) => bytes,
        other => unexpected(&other),
    }
}

pub(crate) fn invoke(invocation: &Invocation, local: Local) -> Result<u32> {
    number(current().ask(Ask::Invoke(invocation.clone()), local))
}

pub(crate) fn timer(duration_ms: u64) -> Result<u32> {
    number(current().ask(Ask::Timer(duration_ms), None))
}

pub(crate) fn await_one(promise: u32) -> Outcome {
    match current().ask(Ask::AwaitOne(promise), None) {
        Answer::Outcome(outcome) => outcome,
        other => Err(refused(other)),
    }
}

pub(crate) fn await_any(promises: &[u32]) -> Result<(u32, Outcome)> {
    match current().ask(Ask::AwaitAny(promises.to_vec()), None) {
        Answer::First(place, outcome) => Ok((place, outcome)),
        other => Err(refused(other)),
    }
}

pub(crate) fn await_all(promises: &[u32]) -> Result<Vec<Outcome>> {
    match current().ask(Ask::AwaitAll(promises.to_vec()), None) {
        Answer::Outcomes(outcomes) => Ok(outcomes),
        other => Err(refused(other)),
    }
}

pub(crate) fn new_join_set() -> Result<u32> {
    number(current().ask(Ask::JoinSet, None))
}

pub(crate) fn submit(set: u32, promise: u32) -> Result<()> {
    done(current().ask(Ask::Submit { set, promise }, None))
}

pub(crate) fn next(set: u32, timeout_ms: Option<u64>) -> Result<Taken> {
    match current().ask(Ask::Next { set, timeout_ms }, None) {
        Answer::Taken(taken) => Ok(taken),
        other => Err(refused(other)),
    }
}

pub(crate) fn close(set: u32) -> Result<()> {
    done(current().ask(Ask::Close(set), None))
}

pub(crate) fn await_signal(name: &str, timeout_ms: Option<u64>) -> Result<Option<String>> {
    match current().ask(
        Ask::Signal {
            name: name.to_owned(),
            timeout_ms,
        },
        None,
    ) {
        Answer::Signal(payload) => Ok(payload),
        other => Err(refused(other)),
    }
}

pub(crate) fn is_cancelled() -> bool {
    current().ask(Ask::IsCancelled, None) == Answer::Flag(true)
}

pub(crate) fn continue_as_new(input: &str) {
    current().ask(Ask::ContinueAsNew(input.to_owned()), None);
}

pub(crate) fn http(request: &Request) -> Result<Response> {
    current().http(request)
}

fn number(answer: Answer) -> Result<u32> {
    match answer {
        Answer::Promise(number) => Ok(number),
        other => Err(refused(other)),
    }
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(refused(other)),
    }
}

fn refused(answer: Answer) -> Error {
    match answer {
        Answer::Refused(error) => error,
        other => unexpected(&other),
    }
}

/// Reports a response of the wrong kind, which is a bug of the test environment.
fn unexpected(answer: &Answer) -> ! {
    scope::stop(Error::other(format!(
        "bug in the test environment: unexpected response {answer:?}"
    )))
}
