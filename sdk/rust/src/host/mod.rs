//! The door to the host. In a component these are the functions of `sdk/wit/onward.wit`; in a
//! native test they are those of the [`TestEnv`](crate::testing::TestEnv) that runs it.

#[cfg(target_arch = "wasm32")]
mod guest;
#[cfg(not(target_arch = "wasm32"))]
mod native;

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
pub(crate) use guest::*;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;

use crate::function::Entry;
use crate::retry::Retry;
use crate::{Error, Result};

/// What an operation ended with, as JSON.
pub(crate) type Outcome = Result<String, Error>;

/// Something to have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) target: Target,
    pub(crate) input: String,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) delivery: Delivery,
}

/// What does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Function(String),
    /// `METHOD URL`.
    Http(String),
}

/// Whether it may be repeated after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    AtLeastOnce,
    AtMostOnce,
}

/// What a join set gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    Done(u32, Outcome),
    TimedOut,
    Empty,
}

/// The function that a call names, if the caller has it: what a test runs when it has no stub.
pub(crate) type Local = Option<Entry>;

/// In whole milliseconds, never less than asked for.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
