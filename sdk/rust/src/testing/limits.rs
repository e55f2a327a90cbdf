//! Limits on values, names, policies and failures, with the numbers and messages of the engine, so
//! that a test sees the same failures as on a server.

use crate::host::Outcome;
use crate::retry::RetryPolicy;
use crate::{Error, Result};

/// Bytes of one input, result or signal.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of the name of a function, a signal or a kind of failure, and of `METHOD URL`.
const NAME_BYTES_MAX: usize = 1_024;
/// Bytes of the message of a failure.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a request with its headers, and of the body of a response.
const HTTP_BYTES_MAX: usize = 1 << 20;

/// A failure that is not retried.
pub(crate) fn final_failure(kind: &str, message: impl Into<String>) -> Error {
    Error::new(kind, message).non_retryable()
}

/// The failure of an invalid call.
pub(crate) fn misuse_error(message: impl Into<String>) -> Error {
    final_failure("misuse", message)
}

/// Whether a value is small enough to be recorded.
pub(crate) fn check_size(what: &str, text: &str) -> Result<()> {
    let bytes = text.len();
    if bytes <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(final_failure(
        "too_large",
        format!("{what} has {bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}"),
    ))
}

/// Whether the answer to a request is small enough to be recorded.
pub(crate) fn check_response_size(text: String) -> Outcome {
    let found = text.len();
    if found <= PAYLOAD_BYTES_MAX {
        return Ok(text);
    }
    Err(final_failure(
        "too_large",
        format!("{found} bytes of payload, at most {PAYLOAD_BYTES_MAX} are allowed"),
    ))
}

/// Whether a request or a response is small enough to be sent.
pub(crate) fn check_http_size(what: &str, bytes: usize) -> Result<()> {
    if bytes <= HTTP_BYTES_MAX {
        return Ok(());
    }
    Err(final_failure(
        "too_large",
        format!("the {what} has more than {HTTP_BYTES_MAX} bytes"),
    ))
}

/// Whether a text is a name.
pub(crate) fn check_name(text: &str) -> Result<()> {
    if is_name(text) {
        Ok(())
    } else {
        Err(final_failure("invalid_name", not_a_name(text)))
    }
}

/// Whether a policy is within its ranges.
pub(crate) fn check_policy(retry: &RetryPolicy) -> Result<()> {
    let invalid = |message: String| Err(final_failure("invalid_policy", message));
    if !(1_000..=1_000_000).contains(&retry.factor_permille) {
        return invalid("`factor-permille` must be from 1000 to 1000000".to_owned());
    }
    if retry.jitter_permille > 1_000 {
        return invalid("`jitter-permille` must be from 0 to 1000".to_owned());
    }
    match retry.non_retryable_kinds.iter().find(|kind| !is_name(kind)) {
        Some(kind) => invalid(format!("`non-retryable`: {}", not_a_name(kind))),
        None => Ok(()),
    }
}

/// The outcome of a function as it is recorded: a large result is a failure, an invalid kind
/// becomes `user_error`, and a long message is truncated.
pub(crate) fn recordable_outcome(outcome: Outcome) -> Outcome {
    match outcome {
        Ok(text) => check_size("the result", &text).map(|()| text),
        Err(Error {
            kind,
            message,
            retryable,
        }) => {
            let kind = if is_name(&kind) {
                kind
            } else {
                "user_error".to_owned()
            };
            Err(Error {
                kind,
                message: truncate_message(message),
                retryable,
            })
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn not_a_name(text: &str) -> String {
    format!(
        "`{}` is not a name: expected 1 to {NAME_BYTES_MAX} bytes without control characters",
        text.escape_debug()
    )
}

fn truncate_message(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}
