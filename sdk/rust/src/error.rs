//! Why something failed, in the form in which it is recorded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What workflows and tasks return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure. Any error of the standard library or of a crate becomes one with `?`, of kind
/// `user_error`.
///
/// Whoever failed, a workflow gets kind, message and `retryable` as they were. These kinds are the
/// engine's:
///
/// | kind | what happened | may be retried |
/// |---|---|---|
/// | `user_error` | an error without a kind of its own | yes |
/// | `timeout`, `worker_lost` | an attempt took too long; or its worker was not heard of | yes |
/// | `trap` | a panic, or more memory or time than allowed | yes |
/// | `unknown_function` | nobody has a function of this name (yet) | yes |
/// | `http_failed`, `http_status` | no answer; or 408, 429, 500 and above to a workflow | yes |
/// | `http_denied`, `http_invalid` | a request that is not allowed, or is none | no |
/// | `cancelled` | cancellation was asked for, or the operation is no longer wanted | no |
/// | `in_doubt` | to be done at most once, and nobody knows whether it was: a crash, no answer in time | no |
/// | `too_large` | an input, result or signal of more than 1 MiB | no |
/// | `invalid_payload` | a value that is not what was expected | no |
/// | `too_deep` | 64 workflows wait for each other already, each for the next | no |
/// | `misuse`, `invalid_name`, `invalid_policy` | a call that makes no sense | no |
///
/// ```
/// use onward::Error;
///
/// let error = Error::new("card_declined", "the bank said no").permanent();
/// assert!(error.is("card_declined") && !error.retryable);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// One of the engine's, or a name of your own such as `card_declined`: retry policies go by it.
    pub kind: String,
    /// What happened, for people.
    pub message: String,
    /// False if trying again cannot help, whatever the retry policy says.
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

    /// The same, not to be tried again.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// Whether cancellation was asked for. What the workflow does next is its cleanup.
    pub fn is_cancelled(&self) -> bool {
        self.is("cancelled")
    }

    /// Whether a time limit passed.
    pub fn is_timeout(&self) -> bool {
        self.is("timeout")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// This is why [`Error`] itself is no [`std::error::Error`]: the two would be in each other's way.
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
    fn a_permanent_error_keeps_its_kind() {
        let error = Error::new("timeout", "too late").permanent();
        assert!(error.is_timeout() && !error.is_cancelled() && !error.retryable);
    }
}
