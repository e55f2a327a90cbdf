//! The delivery of a campaign run: its provider, message composer, admission gate and policy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{ExponentialBackoff, SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DispatchPolicy, LookupOutcome,
    RenderedMessage, SendOutcome,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::Semaphore;

use crate::reservation::Reservation;

/// The capabilities that a provider's adapter declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderCapabilities {
    /// Maximum number of items in one call. Default: 1.
    pub max_batch: usize,
    /// The provider honours idempotency keys, so it can be called again with the same key. Default:
    /// false.
    pub idempotent: bool,
    /// The provider can look up the status of a message by its idempotency key. Default: false.
    pub status_lookup: bool,
}

impl Default for ProviderCapabilities {
    /// One item per call, no idempotency keys and no status lookup.
    fn default() -> Self {
        Self {
            max_batch: 1,
            idempotent: false,
            status_lookup: false,
        }
    }
}

/// The service that delivers the messages, such as an SMTP server or an HTTP API.
///
/// It is called only with reservations: the commit that stores a reservation creates it, and the
/// call consumes it.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The name of the provider in the outbox.
    fn name(&self) -> &str;

    /// The capabilities that the dispatcher may rely on.
    fn capabilities(&self) -> ProviderCapabilities;

    /// Limits how many items this process sends to the provider at a time; `None` means no limit.
    /// The worker acquires permits before it reserves, so that items waiting for a permit are not
    /// reserved.
    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        None
    }

    /// Delivers a batch and returns the outcome of each item by item id. Items without an outcome
    /// are in doubt.
    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)>;

    /// Looks up the status of a message by its idempotency key.
    async fn lookup_status(&self, _key: &str) -> LookupOutcome {
        LookupOutcome::Unknown
    }
}

/// Decides when recipients may be reached: rate limits and quiet hours.
pub trait AdmissionGate: Send + Sync + 'static {
    /// Admits some of these recipients, in their order and at most `at_most`, and counts them
    /// against the limits.
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        now: Timestamp,
    ) -> SendAdmission;

    /// Called when the provider throttles: no user of the provider may send before this much time
    /// has passed.
    fn pause_sends(&self, _delay: Duration, _now: Timestamp) {}
}

/// The decision of an [`AdmissionGate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendAdmission {
    /// These recipients may be reached now, by their indexes in the list; at least one.
    Admitted(Vec<usize>),
    /// No recipient may be reached before this much time has passed.
    Delayed(Duration),
}

impl SendAdmission {
    /// Admits at most `at_most` recipients for which `check` succeeds. If none is admitted, returns
    /// the shortest of their delays.
    pub fn admit_each(
        recipients: &[&AudienceRecipient],
        at_most: usize,
        check: impl Fn(&AudienceRecipient) -> Result<(), Duration>,
    ) -> Self {
        let (mut admitted, mut shortest) = (Vec::new(), Duration::MAX);
        for (index, recipient) in recipients.iter().enumerate() {
            if admitted.len() >= at_most {
                break;
            }
            match check(recipient) {
                Ok(()) => admitted.push(index),
                Err(delay) => shortest = shortest.min(delay),
            }
        }
        if admitted.is_empty() && !recipients.is_empty() {
            Self::Delayed(shortest)
        } else {
            Self::Admitted(admitted)
        }
    }
}

/// A gate that admits every recipient at any time.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnrestrictedGate;

impl AdmissionGate for UnrestrictedGate {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        _now: Timestamp,
    ) -> SendAdmission {
        SendAdmission::Admitted((0..recipients.len().min(at_most)).collect())
    }
}

/// Everything a worker needs to deliver the items of a campaign run.
pub struct CampaignDelivery {
    /// The provider that sends the messages.
    pub provider: Arc<dyn Provider>,
    /// Renders the messages.
    pub composer: Arc<dyn ComposeMessage>,
    /// Decides when recipients may be reached.
    pub gate: Arc<dyn AdmissionGate>,
    /// The window, limits and retry policy of attempts.
    pub policy: DispatchPolicy,
    /// The timeout of a provider call.
    pub timeout: Duration,
}

/// Delay in milliseconds after which another attempt looks at items in doubt, possibly on a node
/// that has the provider.
const LOOKUP_RETRY_MS: u64 = 600_000;

/// The backoff of attempts that have no provider.
const NO_PROVIDER_BACKOFF: ExponentialBackoff = ExponentialBackoff {
    initial_ms: 5_000,
    max_ms: 15 * 60_000,
};

impl CampaignDelivery {
    /// A delivery that sends nothing, for cancelled runs and for takeovers of expired leases.
    /// Whether the provider honours idempotency keys or has a status lookup is unknown here, so
    /// items in doubt are left for a node that has the provider.
    pub(crate) fn without_provider() -> Self {
        Self {
            provider: Arc::new(UnavailableProvider),
            composer: Arc::new(UnavailableProvider),
            gate: Arc::new(UnrestrictedGate),
            policy: DispatchPolicy {
                window: 1,
                max_sends: u32::MAX,
                max_attempts: u32::MAX,
                backoff: NO_PROVIDER_BACKOFF,
                resend_in_doubt: true,
                lookup_after_ms: Some(LOOKUP_RETRY_MS),
                max_unreachable_ms: u64::MAX,
            },
            timeout: Duration::ZERO,
        }
    }
}

/// The error of items of a run whose provider this node does not have.
const NO_PROVIDER: &str = "this node has no provider for the campaign run";

/// A provider and composer that delivers nothing.
struct UnavailableProvider;

#[async_trait]
impl Provider for UnavailableProvider {
    fn name(&self) -> &str {
        "none"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities::default()
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        batch
            .iter()
            .map(|it| {
                (
                    it.item_id().clone(),
                    SendOutcome::Deferred(NO_PROVIDER.into()),
                )
            })
            .collect()
    }
}

impl ComposeMessage for UnavailableProvider {
    fn compose_message(
        &self,
        _recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        Err(ComposeError::new(NO_PROVIDER))
    }
}

/// The reason why this node cannot deliver a campaign run, such as a provider that it lacks. It
/// wraps the error of the [`DeliveryResolver`] implementation.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DeliveryError(#[from] Box<dyn std::error::Error + Send + Sync>);

impl DeliveryError {
    /// Wraps the error of an implementation; a text is an error as well.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Finds the delivery of a campaign run.
pub trait DeliveryResolver: Send + Sync + 'static {
    /// Returns the delivery of this run, or the reason why this node cannot deliver it.
    fn resolve_delivery(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError>;
}

/// Uses one delivery for all campaign runs.
impl DeliveryResolver for Arc<CampaignDelivery> {
    fn resolve_delivery(
        &self,
        _run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        Ok(Self::clone(self))
    }
}
