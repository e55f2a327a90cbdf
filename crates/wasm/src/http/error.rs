//! Errors of outgoing HTTP requests.

use std::error::Error;
use std::net::IpAddr;

use onward_journal::{ErrorKind, ExecutionError};
use thiserror::Error;

use crate::guest_error::permanent_error;

/// Reason why a request has no response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HttpError {
    /// The request is malformed and cannot be sent.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// The host is not in an allow-list.
    #[error("requests to {host} are not allowed by {allow_list} configuration")]
    HostDenied {
        /// The refused host and port.
        host: String,
        /// The allow-list that lacks the host: the server's or the component's.
        allow_list: &'static str,
    },
    /// The host resolves to an address that guests must not reach. The message does not contain the
    /// address: a guest must not learn what an internal name resolves to.
    #[error("requests to `{host}` are not allowed: its address is not public")]
    AddressDenied {
        /// The refused host.
        host: String,
        /// The forbidden address of the host.
        address: IpAddr,
        /// Why the address is forbidden.
        reason: &'static str,
    },
    /// The request or the response exceeds its size limit.
    #[error("the {what} has more than {max} bytes")]
    TooLarge {
        /// `request` or `response`, whichever is too large.
        what: &'static str,
        /// Maximum size in bytes.
        max: usize,
    },
    /// The timeout expired before the response was complete.
    #[error("no response in {ms} ms")]
    Timeout {
        /// The timeout in milliseconds.
        ms: u128,
    },
    /// No connection could be established, so the request was not sent.
    #[error("{0}")]
    Unreachable(String),
    /// The network or the remote server failed, or the TLS configuration is unusable.
    #[error("{0}")]
    Failed(String),
}

impl HttpError {
    /// Converts the error of a library. If its chain of sources contains an [`HttpError`], returns
    /// that one.
    pub(super) fn from_source(error: &(dyn Error + 'static)) -> Self {
        let mut reasons = Vec::new();
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(ours) = error.downcast_ref::<Self>() {
                return ours.clone();
            }
            reasons.push(error.to_string());
            next = error.source();
        }
        reasons.dedup();
        Self::Failed(reasons.join(": "))
    }

    /// Whether the request may have reached the remote server, so that its effect is unknown.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Failed(_) => true,
            Self::TooLarge { what, .. } => *what == "response",
            Self::Invalid(_)
            | Self::HostDenied { .. }
            | Self::AddressDenied { .. }
            | Self::Unreachable(_) => false,
        }
    }

    /// Converts the error into the failure of the task that sent the request. Only timeouts and
    /// network failures are retryable.
    pub fn into_execution_error(self) -> ExecutionError {
        let message = self.to_string();
        match self {
            Self::Invalid(_) => permanent_error("http_invalid", message),
            Self::HostDenied { .. } | Self::AddressDenied { .. } => {
                permanent_error("http_denied", message)
            }
            Self::TooLarge { .. } => permanent_error("too_large", message),
            Self::Timeout { .. } => ExecutionError::new(ErrorKind::Timeout, message),
            Self::Unreachable(_) | Self::Failed(_) => ExecutionError {
                retryable: true,
                ..permanent_error("http_failed", message)
            },
        }
    }
}
