//! Failures of executions and operations: a kind that programs act on and a message for people.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use thiserror::Error;

use onward_base::{BoundedName, NameError, SharedText};

/// The reason why an execution or one of its operations failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error, Encode, Decode)]
#[error("{kind}: {message}")]
pub struct ExecutionError {
    /// The kind of failure; retry policies match it.
    #[n(0)]
    pub kind: ErrorKind,
    /// What happened, as text for people.
    #[n(1)]
    pub message: SharedText,
    /// Whether another attempt may succeed. If `false`, no retry policy allows one.
    #[n(2)]
    #[cbor(with = "crate::codec::retryable", has_nil)]
    pub retryable: bool,
}

impl ExecutionError {
    /// Creates a retryable failure with the kind of this name; the kind is [`ErrorKind::UserError`]
    /// if `kind` is not a valid name.
    pub fn from_kind_name(kind: &str, message: impl Into<SharedText>) -> Self {
        Self::new(kind.parse().unwrap_or(ErrorKind::UserError), message)
    }

    /// Creates a retryable failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<SharedText>) -> Self {
        Self {
            kind,
            message: message.into(),
            retryable: true,
        }
    }

    /// Returns the same failure as a permanent one, which is never retried.
    #[must_use]
    pub fn into_permanent(self) -> Self {
        Self {
            retryable: false,
            ..self
        }
    }
}

/// The kinds of failure: five reserved ones, and names that user code chooses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ErrorKind {
    /// The guest trapped: out of bounds, out of fuel, or unreachable code.
    Trap,
    /// User code returned an error without a kind of its own.
    UserError,
    /// A deadline passed.
    Timeout,
    /// The operation or execution was cancelled.
    Cancelled,
    /// The guest diverged from its journal during replay.
    Nondeterminism,
    /// User code returned an error of its own kind, such as `card_declined`.
    Named(ErrorKindName),
}

impl ErrorKind {
    const RESERVED: [(Self, &'static str); 5] = [
        (Self::Trap, "trap"),
        (Self::UserError, "user_error"),
        (Self::Timeout, "timeout"),
        (Self::Cancelled, "cancelled"),
        (Self::Nondeterminism, "nondeterminism"),
    ];

    /// Returns the name of the kind in a journal.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Trap => "trap",
            Self::UserError => "user_error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Nondeterminism => "nondeterminism",
            Self::Named(ErrorKindName(name)) => name,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorKind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let reserved = Self::RESERVED.into_iter().find(|(_, name)| *name == text);
        match reserved {
            Some((kind, _)) => Ok(kind),
            None => text.parse().map(|name| Self::Named(ErrorKindName(name))),
        }
    }
}

/// An error kind that user code chose. Only parsing an [`ErrorKind`] creates one, so it is never
/// the name of a reserved kind, and each kind has one representation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ErrorKindName(BoundedName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_round_trips() {
        for (kind, name) in ErrorKind::RESERVED {
            assert_eq!(name.parse(), Ok(kind.clone()));
            assert_eq!(kind.to_string(), name);
        }
        let named: ErrorKind = "card_declined".parse().unwrap();
        assert!(matches!(named, ErrorKind::Named(_)));
        assert_eq!(named.as_str(), "card_declined");
    }

    #[test]
    fn a_kind_is_a_name() {
        for text in ["", "a\nb"] {
            assert!(text.parse::<ErrorKind>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_error_displays_kind_and_message() {
        let error = ExecutionError::new(ErrorKind::Timeout, "no answer in 3 s");
        assert_eq!(error.to_string(), "timeout: no answer in 3 s");
        assert!(error.retryable);
        let permanent = error.clone().into_permanent();
        assert!(!permanent.retryable);
        assert_eq!(
            (permanent.to_string(), &permanent.kind),
            (error.to_string(), &error.kind)
        );
    }
}
