//! The configuration document of a provider, and the dispatch policy that follows from it.

use std::sync::Arc;
use std::time::Duration;

use onward_base::ExponentialBackoff;
use onward_campaign_core::{DispatchPolicy, RenderedMessage};
use onward_campaign_dispatch::Provider;
use onward_campaign_file::CampaignRetries;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::folder::FolderSpec;
use crate::http::HttpSpec;
use crate::outgoing_item::OutgoingItem;
use crate::provider_error::{MessageBuildError, ProviderConfigError, ProviderError};
use crate::rate_limits::RateLimits;
use crate::secret::{SecretRef, SecretSource};
use crate::smtp::SmtpSpec;
use crate::spec_error::ProviderDocumentError;

/// Additional time that a worker waits after the provider's own timeout, so that the provider can
/// still report the outcome.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// Maximum number of items that a worker reserves and sends concurrently.
pub(crate) const WINDOW_MAX: usize = 1_000;

/// Default and maximum time for which a provider that cannot be reached is waited for.
const UNREACHABLE_MS_DEFAULT: u64 = 24 * 3_600 * 1_000;
pub(crate) const UNREACHABLE_MS_MAX: u64 = 7 * UNREACHABLE_MS_DEFAULT;

/// Idempotency key of sample messages, which are never sent, in the format of item keys.
const SAMPLE_KEY: &str = "00000000000000000000000000000000";

/// Configuration of a provider. It has no secrets, only their names.
///
/// ```
/// let spec = r#"{"smtp": {
///     "url": "smtps://mail.example.org", "user": "shop", "password": {"secret": "MAIL"}
/// }}"#;
/// let spec: onward_campaign_delivery::ProviderSpec = serde_json::from_str(spec)?;
/// assert_eq!(spec.secret_names(), ["MAIL"]);
/// assert_eq!(spec.host_port().as_deref(), Some("mail.example.org:465"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "Value")]
pub enum ProviderSpec {
    /// An SMTP server.
    Smtp(SmtpSpec),
    /// A service with an HTTP API.
    Http(Box<HttpSpec>),
    /// A folder that messages are written to, for development.
    Folder(FolderSpec),
}

/// The serialized form of [`ProviderSpec`], which is deserialized with the path of an error.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProviderDocument {
    Smtp(SmtpSpec),
    Http(Box<HttpSpec>),
    Folder(FolderSpec),
}

impl TryFrom<Value> for ProviderSpec {
    type Error = ProviderDocumentError;

    fn try_from(document: Value) -> Result<Self, ProviderDocumentError> {
        let document = serde_path_to_error::deserialize(document)
            .map_err(|error| ProviderDocumentError::from_serde(&error))?;
        Ok(match document {
            ProviderDocument::Smtp(spec) => Self::Smtp(spec),
            ProviderDocument::Http(spec) => Self::Http(spec),
            ProviderDocument::Folder(spec) => Self::Folder(spec),
        })
    }
}

/// Dispatch policy of a provider. Each field that is not set has the default of the kind of
/// provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchPolicySpec {
    /// Items that a worker reserves and sends concurrently, between 1 and 1000. As many may be in
    /// doubt after a crash. default: `max_connections` for SMTP, 8 requests for HTTP, 50 for a
    /// folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Time in milliseconds after which the provider can be asked for the status of an item in
    /// doubt. Allowed only if the provider supports status lookups. default: 60000 for HTTP, 0 for
    /// a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup_after_ms: Option<u64>,
    /// Time in milliseconds after the first try of an item for which a provider that cannot be
    /// reached is waited for, at most one week. default: 86400000, one day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unreachable_ms: Option<u64>,
}

/// Default dispatch policy of a kind of provider.
pub(crate) struct ProviderDefaults {
    pub(crate) window: usize,
    /// Whether the provider deduplicates by idempotency key, so that items in doubt can be resent.
    pub(crate) is_idempotent: bool,
    /// Time in milliseconds until a status lookup finds an item; `None` if the provider has no
    /// status lookup.
    pub(crate) lookup_after_ms: Option<u64>,
    /// Timeout of one call of the provider.
    pub(crate) timeout: Duration,
}

impl ProviderSpec {
    /// Builds the provider with `name` as its name in the outbox. It does not connect yet. Fails if
    /// the configuration is invalid or a secret is missing.
    pub fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<Arc<dyn Provider>, ProviderError> {
        self.build_checked(name, secrets)
            .map_err(|cause| ProviderError {
                name: name.to_owned(),
                cause,
            })
    }

    fn build_checked(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<Arc<dyn Provider>, ProviderConfigError> {
        let setting = format!("{}.rate_limits", self.kind());
        self.rate_limits().check_limits(&setting)?;
        self.check_policy()?;
        Ok(match self {
            Self::Smtp(spec) => Arc::new(spec.build_provider(name, secrets)?),
            Self::Http(spec) => Arc::new(spec.build_provider(name, secrets)?),
            Self::Folder(spec) => Arc::new(spec.build_provider(name)?),
        })
    }

    /// Builds the message without sending it. Fails with the reason if the provider cannot build
    /// it.
    pub fn dry_run(
        &self,
        recipient: &str,
        to: &str,
        message: &RenderedMessage,
    ) -> Result<(), MessageBuildError> {
        let item = OutgoingItem {
            item_id: "sample.0",
            key: SAMPLE_KEY,
            to,
            recipient,
            message,
        };
        match self {
            Self::Smtp(spec) => spec.dry_run(&item),
            Self::Http(spec) => spec.dry_run(&item),
            Self::Folder(_) => Ok(()),
        }
    }

    /// Returns the names of the required secrets, without duplicates.
    pub fn secret_names(&self) -> Vec<&str> {
        let references: Vec<&SecretRef> = match self {
            Self::Smtp(spec) => spec.password.iter().collect(),
            Self::Http(spec) => spec.auth.iter().map(|auth| auth.secret_ref()).collect(),
            Self::Folder(_) => Vec::new(),
        };
        references
            .into_iter()
            .map(|reference| reference.secret.as_str())
            .collect()
    }

    /// The rate limits of the provider, shared by all its campaigns.
    pub fn rate_limits(&self) -> &RateLimits {
        match self {
            Self::Smtp(spec) => &spec.rate_limits,
            Self::Http(spec) => &spec.rate_limits,
            Self::Folder(spec) => &spec.rate_limits,
        }
    }

    /// The kind of the provider, as in documents: `smtp`, `http` or `folder`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Smtp(_) => "smtp",
            Self::Http(_) => "http",
            Self::Folder(_) => "folder",
        }
    }

    /// The server that the provider connects to, as `host:port`; `None` for a folder on the local
    /// disk, or if the URL is invalid.
    pub fn host_port(&self) -> Option<String> {
        match self {
            Self::Smtp(spec) => spec.host_port(),
            Self::Http(spec) => spec.host_port(),
            Self::Folder(_) => None,
        }
    }

    /// Returns the dispatch policy of a campaign with this provider: the configured values, with
    /// the defaults of the kind of provider, and the retry policy of the campaign.
    pub fn dispatch_policy(&self, retries: &CampaignRetries) -> DispatchPolicy {
        let (spec, defaults) = (self.policy_spec(), self.provider_defaults());
        DispatchPolicy {
            window: self.window(),
            max_sends: retries.max_sends,
            max_attempts: retries.max_attempts,
            backoff: ExponentialBackoff {
                initial_ms: retries.initial_backoff_ms,
                max_ms: retries.max_backoff_ms,
            },
            resend_in_doubt: defaults.is_idempotent,
            lookup_after_ms: defaults
                .lookup_after_ms
                .map(|after| spec.lookup_after_ms.unwrap_or(after)),
            max_unreachable_ms: spec.max_unreachable_ms.unwrap_or(UNREACHABLE_MS_DEFAULT),
        }
    }

    fn window(&self) -> usize {
        self.policy_spec()
            .window
            .unwrap_or_else(|| self.provider_defaults().window)
    }

    /// Timeout of a worker for one call of the provider: longer than the provider's own timeout.
    pub fn send_timeout(&self) -> Duration {
        self.provider_defaults().timeout + TIMEOUT_GRACE
    }

    fn provider_defaults(&self) -> ProviderDefaults {
        match self {
            Self::Smtp(spec) => spec.provider_defaults(),
            Self::Http(spec) => spec.provider_defaults(),
            Self::Folder(spec) => spec.provider_defaults(),
        }
    }

    fn policy_spec(&self) -> &DispatchPolicySpec {
        match self {
            Self::Smtp(spec) => &spec.policy,
            Self::Http(spec) => &spec.policy,
            Self::Folder(spec) => &spec.policy,
        }
    }

    fn check_policy(&self) -> Result<(), ProviderConfigError> {
        let (spec, defaults, kind) = (self.policy_spec(), self.provider_defaults(), self.kind());
        let window = self.window();
        if !(1..=WINDOW_MAX).contains(&window) {
            return Err(ProviderConfigError::WindowOutOfRange { kind, window });
        }
        if spec.lookup_after_ms.is_some() && defaults.lookup_after_ms.is_none() {
            return Err(ProviderConfigError::NoStatusLookup { kind });
        }
        if let Some(ms) = spec
            .max_unreachable_ms
            .filter(|ms| *ms > UNREACHABLE_MS_MAX)
        {
            return Err(ProviderConfigError::UnreachableTimeOutOfRange { kind, ms });
        }
        if defaults.timeout.is_zero() {
            return Err(ProviderConfigError::ZeroTimeout { kind });
        }
        Ok(())
    }
}
