//! Why a request came to nothing.

use std::error::Error;
use std::net::IpAddr;

use onward_journal::{ErrorKind, ExecutionError};
use thiserror::Error;

use crate::guest_error::permanent_error;

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HttpError {
    /// It is not a request.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// The host is in no list.
    #[error("requests to {host} are not allowed by {allow_list} configuration")]
    HostDenied {
        /// And the port.
        host: String,
        /// Which list.
        allow_list: &'static str,
    },
    /// The host has an address that guests must not reach.
    #[error("`{host}` has the address {address}, which is {reason}")]
    AddressDenied {
        /// Whose.
        host: String,
        /// Which.
        address: IpAddr,
        /// Why not.
        reason: &'static str,
    },
    /// More bytes than the configuration allows.
    #[error("the {what} has more than {max} bytes")]
    TooLarge {
        /// The request or the response.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// It took too long.
    #[error("no response in {ms} ms")]
    Timeout {
        /// How long it had.
        ms: u128,
    },
    /// There was nobody to send it to.
    #[error("{0}")]
    Unreachable(String),
    /// The network, or the other side.
    #[error("{0}")]
    Failed(String),
}

impl HttpError {
    /// What a library's error amounts to: ours, if it began with ours.
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

    /// Whether the request may have reached the other side: nobody knows what came of it there.
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

    /// The failure of whoever sent the request. Only time and the network may be better next time.
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
