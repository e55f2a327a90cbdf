//! Errors of providers: a configuration that cannot be used, a message that cannot be built, and a
//! campaign whose provider a node does not have.

use thiserror::Error;

use crate::folder::FolderError;
use crate::http::{HttpConfigError, HttpRequestError};
use crate::provider_spec::{UNREACHABLE_MS_MAX, WINDOW_MAX};
use crate::rate_limits::ZeroRateLimit;
use crate::smtp::{MailBuildError, SmtpConfigError};
use crate::spec_error::ProviderDocumentError;

/// A provider cannot be built from its configuration.
#[derive(Debug, Error)]
#[error("provider {name}: {cause}")]
pub struct ProviderError {
    /// Name of the provider in the outbox.
    pub name: String,
    /// What is wrong with the configuration.
    pub cause: ProviderConfigError,
}

/// The reason why the configuration of a provider cannot be used. `kind` is the kind of the
/// provider, which is the first part of the path of a setting.
#[derive(Debug, Error)]
pub enum ProviderConfigError {
    /// A rate limit is 0.
    #[error(transparent)]
    RateLimit(#[from] ZeroRateLimit),
    /// The window is out of range.
    #[error("`{kind}.policy.window` is {window}: it must be between 1 and {WINDOW_MAX}")]
    WindowOutOfRange {
        /// The kind of the provider.
        kind: &'static str,
        /// The configured window.
        window: usize,
    },
    /// A delay of the status lookup is set for a provider that has no status lookup.
    #[error("`{kind}.policy.lookup_after_ms` is not allowed: this provider has no status lookup")]
    NoStatusLookup {
        /// The kind of the provider.
        kind: &'static str,
    },
    /// A provider that cannot be reached would be waited for too long.
    #[error("`{kind}.policy.max_unreachable_ms` is {ms}: it must be at most {UNREACHABLE_MS_MAX}")]
    UnreachableTimeOutOfRange {
        /// The kind of the provider.
        kind: &'static str,
        /// The configured time.
        ms: u64,
    },
    /// The timeout is 0.
    #[error("`{kind}.timeout_ms` must be at least 1")]
    ZeroTimeout {
        /// The kind of the provider.
        kind: &'static str,
    },
    /// A setting of an SMTP provider is invalid.
    #[error(transparent)]
    Smtp(#[from] SmtpConfigError),
    /// A setting of an HTTP provider is invalid.
    #[error(transparent)]
    Http(#[from] HttpConfigError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// The reason why a provider cannot build a message.
#[derive(Debug, Error)]
pub enum MessageBuildError {
    /// A setting of the SMTP provider is invalid.
    #[error(transparent)]
    SmtpConfig(#[from] SmtpConfigError),
    /// The email cannot be built.
    #[error(transparent)]
    Mail(#[from] MailBuildError),
    /// A setting of the HTTP provider is invalid.
    #[error(transparent)]
    HttpConfig(#[from] HttpConfigError),
    /// The HTTP request cannot be rendered.
    #[error(transparent)]
    HttpRequest(#[from] HttpRequestError),
}

/// The reason why a node cannot provide the provider of a campaign.
#[derive(Debug, Error)]
pub enum CampaignProviderError {
    /// The campaign names a provider that the node does not have.
    #[error("unknown provider {name}: {}", describe_available(available))]
    UnknownProvider {
        /// The name in the campaign file.
        name: String,
        /// The names of the providers of the node that the tenant may use.
        available: Vec<String>,
    },
    /// The campaign file defines a provider, which the node does not allow.
    #[error(
        "this server does not allow providers in campaign files: use the name of one of its \
         providers, or start it with --inline-providers (onward dev: --allow-inline-providers)"
    )]
    InlineNotAllowed,
    /// The definition in the campaign file is invalid.
    #[error("invalid definition of the provider: {0}")]
    InvalidDefinition(#[from] ProviderDocumentError),
    /// The provider cannot be built.
    #[error(transparent)]
    Unusable(#[from] ProviderError),
    /// The configuration cannot be serialized to compare it with others.
    #[error("cannot serialize the configuration of the provider: {0}")]
    Serialize(#[from] serde_json::Error),
}

fn describe_available(names: &[String]) -> String {
    if names.is_empty() {
        "this server has no providers".to_owned()
    } else {
        format!("this server has {}", names.join(", "))
    }
}
