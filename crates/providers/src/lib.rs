//! Those who really send: by SMTP, over HTTP, or into a folder.
//!
//! - [`ProviderSpec`]: how to reach a provider, as a document that holds no secret; [`ProviderSpec::build`] makes one of it.
//! - [`Secrets`]: where the secrets are that a document names.
//! - [`Limits`] and [`Throttle`]: how many may be reached in which time, altogether and in each domain.
//!
//! What matters most is what is said when something goes wrong. That nothing was sent is said only where it is known;
//! wherever the provider may have taken an item, the answer is that nobody knows.

mod folder;
mod http;
mod outgoing_item;
mod provider_spec;
mod rate_limiter;
mod rate_limits;
mod secret;
mod smtp;
mod spec_error;

pub use folder::FolderSpec;
pub use http::{
    HttpAuthSpec, HttpBatchSpec, HttpResponseSpec, HttpSpec, HttpStatusMatch, StatusLookupSpec,
};
pub use provider_spec::{DispatchPolicySpec, ProviderSpec};
pub use rate_limiter::RateLimiter;
pub use rate_limits::{DomainRateLimits, RateLimitRule, RateLimits};
pub use secret::{EnvironmentSecrets, SecretRef, SecretSource};
pub use smtp::{SmtpSpec, SmtpTlsMode};
