//! Sends what campaigns compose: providers (SMTP, HTTP, a folder), rate limits and quiet hours.
//!
//! - [`ProviderSpec`]: the configuration of a provider, as a document without secrets;
//!   [`ProviderSpec::build_provider`] builds a provider from it.
//! - [`NamedProvider`]: a provider of the settings, with the tenants that may use it and the
//!   senders that they may name.
//! - [`ProviderRegistry`]: the providers of a server by name. The dispatcher asks it how to deliver
//!   a campaign run, and a deployment asks it whether the run could be delivered.
//! - [`ProviderError`], [`MessageBuildError`], [`CampaignProviderError`]: why a provider, a message
//!   or the provider of a campaign cannot be used.
//! - [`SecretSource`]: resolves the secrets that a document refers to.
//! - [`RateLimits`] and [`RateLimiter`]: a GCRA rate limiter, global and per recipient domain.
//! - `send_gate`: admission of sends under rate limits and quiet hours.
//!
//! A provider reports "not sent" only when that is certain. Whenever the provider may have accepted
//! an item, the outcome is unknown and the item becomes in doubt.

mod folder;
mod http;
mod named_provider;
mod outgoing_item;
mod provider_error;
mod provider_registry;
mod provider_spec;
mod rate_limiter;
mod rate_limits;
mod secret;
mod send_gate;
mod smtp;
mod spec_error;

pub use folder::{FolderError, FolderSpec};
pub use http::{
    HttpAuthSpec, HttpBatchSpec, HttpConfigError, HttpRequestError, HttpResponseSpec, HttpSpec,
    HttpStatusMatch, StatusLookupSpec,
};
pub use named_provider::NamedProvider;
pub use provider_error::{
    CampaignProviderError, MessageBuildError, ProviderConfigError, ProviderError,
};
pub use provider_registry::{InlineProviderPolicy, ProviderRegistry, check_inline_provider};
pub use provider_spec::{DispatchPolicySpec, ProviderSpec};
pub use rate_limiter::RateLimiter;
pub use rate_limits::{DomainRateLimits, RateLimitRule, RateLimits, ZeroRateLimit};
pub use secret::{EnvironmentSecrets, SecretError, SecretRef, SecretSource};
pub use smtp::{MailBuildError, SmtpConfigError, SmtpSpec, SmtpTlsMode};
pub use spec_error::ProviderDocumentError;
