//! How to reach a provider, as a document.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{DispatchPolicy, ExponentialBackoff, RenderedMessage};
use onward_campaign_dispatch::Provider;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::folder::FolderSpec;
use crate::http::HttpSpec;
use crate::outgoing_item::OutgoingItem;
use crate::rate_limits::RateLimits;
use crate::secret::{SecretRef, SecretSource};
use crate::smtp::SmtpSpec;
use crate::spec_error;

/// A worker waits so much longer than a provider says that a call may take, so that the provider can still say what it knows.
const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// Items that are called for together, at most.
const WINDOW_MAX: usize = 1_000;

/// A key as items have it, for what is not sent.
const SAMPLE_KEY: &str = "00000000000000000000000000000000";

/// How to reach a provider. There are no secrets in it, only their names.
///
/// ```
/// let spec = r#"{"smtp": {"url": "smtps://mail.example.org", "user": "shop", "password": {"secret": "MAIL"}}}"#;
/// let spec: crate::ProviderSpec = serde_json::from_str(spec)?;
/// assert_eq!(spec.secrets(), ["MAIL"]);
/// assert_eq!(spec.host().as_deref(), Some("mail.example.org:465"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "Value")]
pub enum ProviderSpec {
    /// A server of mail.
    Smtp(SmtpSpec),
    /// A service with an interface over HTTP.
    Http(Box<HttpSpec>),
    /// A folder, for development.
    Folder(FolderSpec),
}

/// The same, as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProviderDocument {
    Smtp(SmtpSpec),
    Http(Box<HttpSpec>),
    Folder(FolderSpec),
}

impl TryFrom<Value> for ProviderSpec {
    type Error = String;

    fn try_from(document: Value) -> Result<Self, String> {
        let read = serde_path_to_error::deserialize(document)
            .map_err(|wrong| spec_error::describe_spec_error(&wrong))?;
        Ok(match read {
            ProviderDocument::Smtp(spec) => Self::Smtp(spec),
            ProviderDocument::Http(spec) => Self::Http(spec),
            ProviderDocument::Folder(spec) => Self::Folder(spec),
        })
    }
}

/// How a worker goes about jobs, where it is not to be as it is best for the kind of provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchPolicySpec {
    /// Items that are called for together. As many may be in doubt after a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Calls for one item that was not taken, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u32>,
    /// Tries of a job that came to nothing, one after the other, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// When the provider can be asked what became of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_after_ms: Option<u64>,
}

/// What is best for a kind of provider.
pub(crate) struct ProviderDefaults {
    pub(crate) window: usize,
    /// It takes each key once.
    pub(crate) is_idempotent: bool,
    /// It can be asked, after so long.
    pub(crate) lookup_after_ms: Option<u64>,
    /// How long a call may take.
    pub(crate) timeout: Duration,
}

impl ProviderSpec {
    /// Makes the provider, called `name` in the outbox. Nobody is connected to yet.
    pub fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<Arc<dyn Provider>, String> {
        let about = |words: String| format!("provider {name}: {words}");
        self.rate_limits().check_limits().map_err(about)?;
        self.check_policy().map_err(about)?;
        Ok(match self {
            Self::Smtp(spec) => Arc::new(spec.build_provider(name, secrets).map_err(about)?),
            Self::Http(spec) => Arc::new(spec.build_provider(name, secrets).map_err(about)?),
            Self::Folder(spec) => Arc::new(spec.build_provider(name).map_err(about)?),
        })
    }

    /// Whether it could send this to somebody, as far as that is known without sending it. What cannot be made of it is said.
    pub fn dry_run(
        &self,
        recipient: &str,
        to: &str,
        message: &RenderedMessage,
    ) -> Result<(), String> {
        let parcel = OutgoingItem {
            item: "sample.0",
            key: SAMPLE_KEY,
            to,
            recipient,
            message,
        };
        match self {
            Self::Smtp(spec) => spec.dry_run(&parcel),
            Self::Http(spec) => spec.dry_run(&parcel),
            Self::Folder(_) => Ok(()),
        }
    }

    /// The names of the secrets that it needs, each once.
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

    /// How many may be reached through it in which time.
    pub fn rate_limits(&self) -> &RateLimits {
        match self {
            Self::Smtp(spec) => &spec.limits,
            Self::Http(spec) => &spec.limits,
            Self::Folder(spec) => &spec.limits,
        }
    }

    /// Which kind it is, as documents call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Smtp(_) => "smtp",
            Self::Http(_) => "http",
            Self::Folder(_) => "folder",
        }
    }

    /// Whom it connects to, as `host:port`; nobody if it stays on this machine's disk.
    pub fn host_port(&self) -> Option<String> {
        match self {
            Self::Smtp(spec) => spec.host_port(),
            Self::Http(spec) => spec.host_port(),
            Self::Folder(_) => None,
        }
    }

    /// How a worker best goes about jobs with it.
    pub fn dispatch_policy(&self) -> DispatchPolicy {
        let (spec, defaults) = (self.policy_spec(), self.provider_defaults());
        DispatchPolicy {
            window: spec.window.unwrap_or(defaults.window),
            max_sends: spec.calls_max.unwrap_or(5),
            max_attempts: spec.attempts_max.unwrap_or(10),
            backoff: ExponentialBackoff {
                initial_ms: 1_000,
                max_ms: 300_000,
            },
            resend_in_doubt: defaults.is_idempotent,
            lookup_after_ms: defaults
                .lookup_after_ms
                .map(|after| spec.looks_after_ms.unwrap_or(after)),
        }
    }

    /// How long to wait for an answer: longer than the provider itself does.
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
            Self::Smtp(spec) => &spec.terms,
            Self::Http(spec) => &spec.terms,
            Self::Folder(spec) => &spec.terms,
        }
    }

    fn check_policy(&self) -> Result<(), String> {
        let spec = self.policy_spec();
        if !(1..=WINDOW_MAX).contains(&self.dispatch_policy().window) {
            return Err(format!("the window is to be from 1 to {WINDOW_MAX}"));
        }
        if spec.calls_max == Some(0) || spec.attempts_max == Some(0) {
            return Err("calls_max and attempts_max are to be at least 1".to_owned());
        }
        if spec.looks_after_ms.is_some() && self.provider_defaults().lookup_after_ms.is_none() {
            return Err(
                "looks_after_ms is of no use: this provider cannot be asked what became of an item"
                    .to_owned(),
            );
        }
        if self.provider_defaults().timeout.is_zero() {
            return Err("timeout_ms is to be at least 1".to_owned());
        }
        Ok(())
    }
}
