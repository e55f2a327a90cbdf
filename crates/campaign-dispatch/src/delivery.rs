//! How a campaign run reaches people: by whom, and with what.

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

/// What a provider can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderCapabilities {
    /// Items of one call, at most.
    pub max_batch: usize,
    /// It takes each key once, so it can be called again with one.
    pub idempotent: bool,
    /// It can be asked what became of a key.
    pub status_lookup: bool,
}

impl Default for ProviderCapabilities {
    /// One at a time, and it knows nothing of keys.
    fn default() -> Self {
        Self {
            max_batch: 1,
            idempotent: false,
            status_lookup: false,
        }
    }
}

/// Who really sends.
///
/// It is called with reservations and in no other way: a reservation is made by the commit that stores it, and is used up by
/// the call.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// What it is called, in the outbox.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> ProviderCapabilities;

    /// How many items it can be called for at a time by this process. Whoever reserves takes that much room before, so that
    /// what waits for its turn is not reserved.
    fn send_permits(&self) -> Option<Arc<Semaphore>> {
        None
    }

    /// Delivers, and tells what became of each item by its id. What it says nothing of is in doubt.
    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)>;

    /// What it knows of a key.
    async fn lookup_status(&self, _key: &str) -> LookupOutcome {
        LookupOutcome::Unknown
    }
}

/// Says when people may be reached: so many a second, and not at night.
pub trait AdmissionGate: Send + Sync + 'static {
    /// Lets some of these pass, in their order and `at_most` so many, and counts them.
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        now: Timestamp,
    ) -> SendAdmission;

    /// The provider has said that it takes nothing before so much time has gone by: whoever else uses it waits as well.
    fn pause_sends(&self, _wait: Duration, _now: Timestamp) {}
}

/// Who may be reached now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendAdmission {
    /// These, by their places in the list. There is at least one.
    Admitted(Vec<usize>),
    /// Nobody, before so much time has gone by.
    Delayed(Duration),
}

impl SendAdmission {
    /// Those who are let pass one by one, `at_most` so many; or how long the first of the others has to wait.
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

/// Everybody, at any time.
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

/// How a campaign run reaches people.
pub struct CampaignDelivery {
    /// Who sends.
    pub provider: Arc<dyn Provider>,
    /// What.
    pub composer: Arc<dyn ComposeMessage>,
    /// When.
    pub gate: Arc<dyn AdmissionGate>,
    /// How it is gone about.
    pub policy: DispatchPolicy,
    /// How long a call may take.
    pub timeout: Duration,
}

/// When somebody looks again who may know the provider of what is in doubt.
const LOOKUP_RETRY_MS: u64 = 600_000;

impl CampaignDelivery {
    /// One by which nobody is reached, for runs that are cancelled, and for what others have left behind: whether the provider
    /// takes each key once, and can be asked, is not known here, so what is in doubt is left for somebody who knows.
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

/// Reaches nobody.
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

/// Knows how campaign runs reach people.
pub trait DeliveryResolver: Send + Sync + 'static {
    /// How this one does, or why it cannot.
    fn resolve_delivery(&self, run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String>;
}

/// All of them in the same way.
impl DeliveryResolver for Arc<CampaignDelivery> {
    fn resolve_delivery(&self, _run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        Ok(Self::clone(self))
    }
}
