//! The delivery of a campaign run: its provider, message composer, admission gate and policy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, ComposeMessage, DispatchPolicy, ExponentialBackoff, LookupOutcome,
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
    fn pause_sends(&self, _wait: Duration, _now: Timestamp) {}
}

/// The decision of an [`AdmissionGate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendAdmission {
    /// These recipients may be reached now, by their places in the list; at least one.
    Admitted(Vec<usize>),
    /// No recipient may be reached before this much time has passed.
    Delayed(Duration),
}

impl SendAdmission {
    /// Admits at most `at_most` recipients for which `pass` succeeds. If none is admitted, returns
    /// the shortest of their delays.
    pub fn admit_each(
        recipients: &[&AudienceRecipient],
        at_most: usize,
        pass: impl Fn(&AudienceRecipient) -> Result<(), Duration>,
    ) -> Self {
        let (mut admitted, mut shortest) = (Vec::new(), Duration::MAX);
        for (place, recipient) in recipients.iter().enumerate() {
            if admitted.len() >= at_most {
                break;
            }
            match pass(recipient) {
                Ok(()) => admitted.push(place),
                Err(wait) => shortest = shortest.min(wait),
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

impl CampaignDelivery {
    /// A delivery that sends nothing, for cancelled runs and for takeovers of expired leases.
    /// Whether the provider honours idempotency keys or has a status lookup is unknown here, so
    /// items in doubt are left for a node that has the provider.
    pub(crate) fn without_provider() -> Self {
        let (backoff, calls_max) = (ExponentialBackoff::default(), u32::MAX);
        let looks_after_ms = Some(LOOKUP_RETRY_MS);
        let terms = DispatchPolicy {
            window: 1,
            max_sends: calls_max,
            max_attempts: u32::MAX,
            backoff,
            resend_in_doubt: true,
            lookup_after_ms: looks_after_ms,
        };
        let (provider, compose) = (Arc::new(UnavailableProvider), Arc::new(UnavailableProvider));
        Self {
            provider,
            composer: compose,
            gate: Arc::new(UnrestrictedGate),
            policy: terms,
            timeout: Duration::ZERO,
        }
    }
}

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
                    SendOutcome::Deferred("there is no provider".into()),
                )
            })
            .collect()
    }
}

impl ComposeMessage for UnavailableProvider {
    fn compose_message(&self, _recipient: &AudienceRecipient) -> Result<RenderedMessage, String> {
        Err("there is no provider".to_owned())
    }
}

/// Finds the delivery of a campaign run.
pub trait DeliveryResolver: Send + Sync + 'static {
    /// Returns the delivery of this run, or the reason why this node cannot deliver it.
    fn resolve_delivery(&self, run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String>;
}

/// Uses one delivery for all campaign runs.
impl DeliveryResolver for Arc<CampaignDelivery> {
    fn resolve_delivery(&self, _run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        Ok(Self::clone(self))
    }
}
