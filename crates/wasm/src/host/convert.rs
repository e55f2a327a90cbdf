//! Conversions between the types of the WIT interface and those of the engine.

use std::num::NonZeroU32;

use onward_base::{BackoffFactor, BoundedName, NameError, Payload};
use onward_execution::GuestRequest;
use onward_journal::{
    DeliveryGuarantee, ExecutionError, InvokeKind, InvokeResult, RetryJitter, RetryPolicy,
};

use super::{GuestState, accept_payload};
use crate::bindings::types::Failure;
use crate::bindings::workflow;
use crate::guest_error::{permanent_error, too_large_error};

/// Maximum length in bytes of a failure's message, because the journal records it. Longer data
/// belongs in a payload.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

type GuestOutcome = Result<String, Failure>;

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        Self {
            kind: error.kind.to_string(),
            message: error.message.to_string(),
            retryable: error.retryable,
        }
    }
}

impl From<Failure> for ExecutionError {
    /// Keeps the message even if the kind is not a valid name, which is a mistake of the guest.
    fn from(failure: Failure) -> Self {
        let error = Self::from_kind_name(
            &failure.kind,
            truncate_text(failure.message, MESSAGE_BYTES_MAX),
        );
        if failure.retryable {
            error
        } else {
            error.into_permanent()
        }
    }
}

/// Converts the result of a call into the form that is recorded.
pub(crate) fn to_invoke_result(outcome: GuestOutcome, bytes_max: usize) -> InvokeResult {
    match outcome {
        Ok(text) => accept_payload("the result", &text, bytes_max),
        Err(failure) => Err(failure.into()),
    }
}

impl GuestState {
    /// Converts the outcome of an operation into the form that the guest receives.
    pub(super) fn to_guest_outcome(&self, result: InvokeResult) -> GuestOutcome {
        result
            .and_then(|payload| self.to_guest_payload("a result", &payload))
            .map_err(Failure::from)
    }

    /// Converts a payload for the guest. Fails if it exceeds the size limit of this call.
    pub(super) fn to_guest_payload(
        &self,
        what: &str,
        payload: &Payload,
    ) -> Result<String, ExecutionError> {
        let text = payload.as_str();
        if text.len() > self.payload_bytes_max {
            return Err(too_large_error(what, text.len(), self.payload_bytes_max));
        }
        Ok(text.to_owned())
    }

    /// Converts the arguments of `invoke` into a request. Fails if a name, the payload or the retry
    /// policy is invalid.
    pub(super) fn to_invoke_request(
        &self,
        target: &workflow::Target,
        input: &str,
        options: workflow::Options,
    ) -> Result<GuestRequest, ExecutionError> {
        let (kind, function) = match target {
            workflow::Target::Function(name) => (InvokeKind::Function, name),
            workflow::Target::Http(request) => (InvokeKind::Http, request),
        };
        let delivery = match options.delivery {
            workflow::Delivery::AtLeastOnce => DeliveryGuarantee::AtLeastOnce,
            workflow::Delivery::AtMostOnce => DeliveryGuarantee::AtMostOnce,
        };
        Ok(GuestRequest::Invoke {
            kind,
            function: parse_guest_name(function)?,
            input: self.parse_guest_payload("the input", input)?,
            policy: to_retry_policy(options.retry, options.timeout_ms)?.map(Box::new),
            delivery,
        })
    }
}

/// Parses a name from the guest. Fails with the permanent error `invalid_name`.
pub(super) fn parse_guest_name(text: &str) -> Result<BoundedName, ExecutionError> {
    text.parse()
        .map_err(|error: NameError| permanent_error("invalid_name", error.to_string()))
}

/// Converts the guest's retry policy and timeout; `None` if the guest set neither, so that the
/// default applies.
fn to_retry_policy(
    retry: Option<workflow::RetryPolicy>,
    timeout_ms: Option<u64>,
) -> Result<Option<RetryPolicy>, ExecutionError> {
    let Some(retry) = retry else {
        return Ok(timeout_ms.map(|ms| RetryPolicy {
            timeout_ms: Some(ms),
            ..RetryPolicy::default()
        }));
    };
    let out_of_range = |what: &str, range: &str| {
        permanent_error("invalid_policy", format!("`{what}` must be from {range}"))
    };
    let kinds = retry.non_retryable.iter().map(|kind| kind.parse());
    Ok(Some(RetryPolicy {
        max_attempts: NonZeroU32::new(retry.max_attempts),
        initial_interval_ms: retry.initial_interval_ms,
        max_interval_ms: retry.max_interval_ms,
        factor: BackoffFactor::from_permille(retry.factor_permille)
            .ok_or_else(|| out_of_range("factor-permille", "1000 to 1000000"))?,
        jitter: RetryJitter::from_permille(retry.jitter_permille)
            .ok_or_else(|| out_of_range("jitter-permille", "0 to 1000"))?,
        non_retryable: kinds.collect::<Result<_, NameError>>().map_err(|error| {
            permanent_error("invalid_policy", format!("`non-retryable`: {error}"))
        })?,
        timeout_ms,
    }))
}

/// Truncates a text to at most `bytes_max` bytes at a character boundary, and marks the cut with
/// `…`.
pub(crate) fn truncate_text(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use onward_journal::ErrorKind;

    use super::*;

    fn retry() -> workflow::RetryPolicy {
        workflow::RetryPolicy {
            max_attempts: 0,
            initial_interval_ms: 1,
            max_interval_ms: 2,
            factor_permille: 1_500,
            jitter_permille: 0,
            non_retryable: vec!["timeout".to_owned(), "card_declined".to_owned()],
        }
    }

    #[test]
    fn a_policy_without_fields_is_the_default() {
        assert_eq!(to_retry_policy(None, None), Ok(None));
        let timeout_only = to_retry_policy(None, Some(5)).unwrap().unwrap();
        assert_eq!(
            timeout_only,
            RetryPolicy {
                timeout_ms: Some(5),
                ..RetryPolicy::default()
            }
        );
        let all = to_retry_policy(Some(retry()), Some(5)).unwrap().unwrap();
        assert_eq!(all.max_attempts, None, "0 is for ever");
        assert_eq!(
            all.non_retryable,
            [ErrorKind::Timeout, "card_declined".parse().unwrap()]
        );
        assert_eq!((all.factor.as_permille(), all.timeout_ms), (1_500, Some(5)));
    }

    #[test]
    fn a_policy_out_of_range_is_named() {
        for (retry, message) in [
            (
                workflow::RetryPolicy {
                    factor_permille: 999,
                    ..retry()
                },
                "`factor-permille` must be from 1000 to 1000000",
            ),
            (
                workflow::RetryPolicy {
                    jitter_permille: 1_001,
                    ..retry()
                },
                "`jitter-permille` must be from 0 to 1000",
            ),
        ] {
            let error = to_retry_policy(Some(retry), None).unwrap_err();
            assert_eq!(
                (error.kind.as_str(), &*error.message, error.retryable),
                ("invalid_policy", message, false)
            );
        }
        let nameless = workflow::RetryPolicy {
            non_retryable: vec![String::new()],
            ..retry()
        };
        assert!(to_retry_policy(Some(nameless), None).is_err());
    }

    #[test]
    fn failures_convert_both_ways() {
        let failure = |kind: &str, retryable| Failure {
            kind: kind.to_owned(),
            message: "m".to_owned(),
            retryable,
        };
        let declined = ExecutionError::from(failure("card_declined", false));
        assert_eq!(
            (declined.kind.as_str(), declined.retryable),
            ("card_declined", false)
        );
        let nameless = ExecutionError::from(failure("", true));
        assert_eq!(
            (nameless.kind, nameless.retryable),
            (ErrorKind::UserError, true)
        );
        let back = Failure::from(declined);
        assert_eq!(
            (&*back.kind, &*back.message, back.retryable),
            ("card_declined", "m", false)
        );
    }

    #[test]
    fn a_long_text_is_truncated_between_characters() {
        assert_eq!(truncate_text("abc".to_owned(), 3), "abc");
        assert_eq!(truncate_text("aéé".to_owned(), 4), "aé…");
    }
}
