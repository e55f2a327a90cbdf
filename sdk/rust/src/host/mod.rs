//! The host functions. In a component they are the imports of `sdk/wit/onward.wit`; in a native
//! test the [`TestEnv`](crate::testing::TestEnv) implements them.

#[cfg(target_arch = "wasm32")]
mod guest;
#[cfg(not(target_arch = "wasm32"))]
mod native;

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
pub(crate) use guest::*;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;

use crate::function::FunctionEntry;
use crate::retry::RetryPolicy;
use crate::{Error, Result};

/// The outcome of an operation, as JSON.
pub(crate) type Outcome = Result<String, Error>;

/// A call of a function, or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) target: CallTarget,
    pub(crate) input: String,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) delivery: InvocationDelivery,
}

/// The function to call, or the request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallTarget {
    Function(String),
    /// `METHOD URL`.
    Http(String),
}

/// Delivery guarantee: whether an attempt may be repeated after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvocationDelivery {
    AtLeastOnce,
    AtMostOnce,
}

/// The next result of a join set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextOutcome {
    Done(u32, Outcome),
    TimedOut,
    Empty,
}

/// The called function, if it is known: a test runs it if there is no stub.
pub(crate) type LocalFunction = Option<FunctionEntry>;

/// Converts a duration to milliseconds, rounded up.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
