//! The failure of an operation, in the form in which it is recorded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The result type of workflows and tasks.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure. Any error of the standard library or of a crate becomes one with `?`, of kind
/// `user_error`.
///
/// A workflow receives the kind, message and `retryable` of a failure unchanged. The engine uses
/// these kinds:
///
/// | kind | cause | retryable |
/// |---|---|---|
/// | `user_error` | an error without a kind of its own | yes |
/// | `timeout`, `worker_lost` | an attempt exceeded its timeout, or its worker sent no heartbeat | yes |
/// | `trap` | a panic, or more memory or time than allowed | yes |
/// | `unknown_function` | no component or worker has a function of this name (yet) | yes |
/// | `http_failed`, `http_status` | no answer; or 408, 429, 500 and above to a workflow | yes |
/// | `http_denied`, `http_invalid` | a request that is not allowed, or malformed | no |
/// | `cancelled` | cancellation was requested, or the operation was abandoned | no |
/// | `in_doubt` | an at-most-once operation whose outcome is unknown: a crash, or no answer in time | no |
/// | `too_large` | an input, result or signal of more than 1 MiB | no |
/// | `invalid_payload` | a value of an unexpected type | no |
/// | `too_deep` | more than 64 nested workflows | no |
/// | `misuse`, `invalid_name`, `invalid_policy` | an invalid call | no |
///
/// ```
/// use onward::Error;
///
/// let error = Error::new("card_declined", "the bank said no").non_retryable();
/// assert!(error.has_kind("card_declined") && !error.retryable);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// A kind of the engine, or a name of your own such as `card_declined`; retry policies match
    /// it.
    pub kind: String,
    /// Human-readable description.
    pub message: String,
    /// False if a retry cannot succeed; overrides the retry policy.
    pub retryable: bool,
}

impl Error {
    /// A failure of a kind of your own.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
            retryable: true,
        }
    }

    /// A failure without a kind of its own.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new("user_error", message)
    }

    /// Marks the failure as not retryable.
    #[must_use]
    pub fn non_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Whether the failure has this kind.
    pub fn has_kind(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// Whether cancellation was requested. The workflow should now clean up and return.
    pub fn is_cancelled(&self) -> bool {
        self.has_kind("cancelled")
    }

    /// Whether a timeout expired.
    pub fn is_timeout(&self) -> bool {
        self.has_kind("timeout")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// [`Error`] itself does not implement [`std::error::Error`], because that would conflict with this
/// implementation.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::other(message)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Result};

    #[test]
    fn any_error_becomes_one() {
        fn parse(text: &str) -> Result<u64> {
            Ok(text.parse::<u64>()?)
        }
        let error = parse("x").unwrap_err();
        assert_eq!(error, Error::other("invalid digit found in string"));
        assert_eq!(
            error.to_string(),
            "user_error: invalid digit found in string"
        );
    }

    #[test]
    fn a_non_retryable_error_keeps_its_kind() {
        let error = Error::new("timeout", "too late").non_retryable();
        assert!(error.is_timeout() && !error.is_cancelled() && !error.retryable);
    }
}
