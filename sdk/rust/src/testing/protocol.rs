//! The requests of a workflow to the test environment, and the answers. A list of both is the
//! record of an execution.

use std::fmt;

use crate::Error;
use crate::host::{CallTarget, Invocation, NextOutcome, Outcome};

/// A request. Promises and join sets are identified by their operation number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostRequest {
    Invoke(Invocation),
    Timer(u64),
    AwaitOne(u32),
    AwaitAny(Vec<u32>),
    AwaitAll(Vec<u32>),
    JoinSet,
    Submit {
        set: u32,
        promise: u32,
    },
    Next {
        set: u32,
        timeout_ms: Option<u64>,
    },
    Close(u32),
    Signal {
        name: String,
        timeout_ms: Option<u64>,
    },
    Now,
    Random(u32),
    IsCancelled,
    ContinueAsNew(String),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostAnswer {
    Promise(u32),
    Outcome(Outcome),
    First(u32, Outcome),
    Outcomes(Vec<Outcome>),
    Taken(NextOutcome),
    Signal(Option<String>),
    Time(i64),
    Random(Vec<u8>),
    Flag(bool),
    Done,
    Refused(Error),
}

impl HostRequest {
    /// Whether a workflow may have to wait for the answer.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(
            self,
            Self::AwaitOne(_)
                | Self::AwaitAny(_)
                | Self::AwaitAll(_)
                | Self::Next { .. }
                | Self::Signal { .. }
        )
    }
}

/// Text for error messages.
impl fmt::Display for HostRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoke(Invocation {
                target: CallTarget::Function(name),
                input,
                ..
            }) => {
                write!(f, "call {name} with {input}")
            }
            Self::Invoke(Invocation {
                target: CallTarget::Http(line),
                input,
                ..
            }) => write!(f, "send {line} with {input}"),
            Self::Timer(duration_ms) => write!(f, "set a timer of {duration_ms} ms"),
            Self::AwaitOne(promise) => write!(f, "wait for operation {promise}"),
            Self::AwaitAny(promises) => write!(f, "wait for any of the operations {promises:?}"),
            Self::AwaitAll(promises) => write!(f, "wait for all of the operations {promises:?}"),
            Self::JoinSet => f.write_str("create a join set"),
            Self::Submit { set, promise } => {
                write!(f, "submit operation {promise} to join set {set}")
            }
            Self::Next { set, .. } => write!(f, "take the next result of join set {set}"),
            Self::Close(set) => write!(f, "close join set {set}"),
            Self::Signal { name, .. } => write!(f, "wait for the signal {name}"),
            Self::Now => f.write_str("read the clock"),
            Self::Random(length) => write!(f, "draw {length} random bytes"),
            Self::IsCancelled => f.write_str("check for cancellation"),
            Self::ContinueAsNew(input) => write!(f, "continue as new with {input}"),
        }
    }
}
