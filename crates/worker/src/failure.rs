//! The error type that task handlers return.

use std::fmt;

use onward_api::task::TaskError;

/// Why a task failed. Any error converts into a retryable failure whose code is the name of the
/// error's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    code: Option<String>,
    message: String,
    is_retryable: bool,
}

impl TaskFailure {
    /// Creates a retryable failure without a code.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: None,
            message: message.into(),
            is_retryable: true,
        }
    }

    /// Creates a retryable failure with a code that the workflow can match on, such as
    /// `card_declined`.
    pub fn with_code(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: Some(code.into()),
            ..Self::new(message)
        }
    }

    /// Marks the failure as not retryable: another attempt would not help.
    #[must_use]
    pub fn non_retryable(self) -> Self {
        Self {
            is_retryable: false,
            ..self
        }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for TaskFailure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            message = format!("{message}: {deeper}");
            cause = deeper.source();
        }
        let name = std::any::type_name::<E>();
        Self::with_code(name.rsplit("::").next().unwrap_or(name), message)
    }
}

/// Maximum numbers of characters of a message and of a code that are sent to the server.
const MESSAGE_MAX: usize = 10_000;
const CODE_MAX: usize = 200;

impl From<TaskFailure> for TaskError {
    /// Truncates the message and the code to their maximum lengths.
    fn from(failure: TaskFailure) -> Self {
        let cut = |text: String, max| {
            if text.chars().count() > max {
                text.chars().take(max).collect()
            } else {
                text
            }
        };
        let code = failure.code.map(|code| cut(code, CODE_MAX));
        Self {
            message: cut(failure.message, MESSAGE_MAX),
            code,
            retryable: failure.is_retryable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_messages_of_all_causes() {
        let error = "x".parse::<u8>().expect_err("it is not a number");
        assert_eq!(
            TaskFailure::from(error),
            TaskFailure::with_code("ParseIntError", "invalid digit found in string")
        );
        let error: TaskError = TaskFailure::with_code("declined", "no money")
            .non_retryable()
            .into();
        assert_eq!(
            (error.code.as_deref(), &*error.message, error.retryable),
            (Some("declined"), "no money", false)
        );
    }
}
