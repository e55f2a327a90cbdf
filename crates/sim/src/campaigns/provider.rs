//! The simulated provider and its own records of calls and deliveries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::{LookupOutcome, SendOutcome};
use onward_campaign_dispatch::{Provider, ProviderCapabilities, Reservation};
use tokio::time::sleep;

use super::{FaultMode, SharedRandom};

/// The provider's record of an idempotency key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeliveryRecord {
    /// Number of calls with the key.
    pub(super) calls: u32,
    /// Number of times the provider accepted it.
    pub(super) deliveries: u32,
    /// `true` if the provider has refused it permanently.
    pub(super) is_refused: bool,
    /// Number of calls with the key in flight, whose outcome is not decided yet.
    pub(super) in_flight: u32,
}

/// A provider with random outcomes that records every call and delivery.
pub(super) struct SimProvider {
    random: SharedRandom,
    capabilities: ProviderCapabilities,
    records: Mutex<BTreeMap<SharedText, DeliveryRecord>>,
    has_faults: AtomicBool,
}

impl SimProvider {
    pub(super) fn new(random: SharedRandom, capabilities: ProviderCapabilities) -> Self {
        Self {
            random,
            capabilities,
            records: Mutex::default(),
            has_faults: AtomicBool::new(true),
        }
    }

    pub(super) fn set_faults(&self, faults: FaultMode) {
        self.has_faults
            .store(faults == FaultMode::Injected, Ordering::SeqCst);
    }

    pub(super) fn delivery_records(&self) -> MutexGuard<'_, BTreeMap<SharedText, DeliveryRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes a call for an item; `None` if no outcome is returned for it.
    fn accept_item(&self, key: &SharedText) -> Option<SendOutcome> {
        let has_faults = self.has_faults.load(Ordering::SeqCst);
        // The call does not reach the provider.
        if has_faults && self.random.roll_percent(10) {
            return Some(SendOutcome::Unreachable("connection refused".into()));
        }
        let mut records = self.delivery_records();
        let record = records.entry(key.clone()).or_default();
        record.calls += 1;
        let drawn = if has_faults {
            self.random.draw_below(100)
        } else {
            100
        };
        // An idempotent provider has already accepted the key, but may return another outcome
        // before it checks for that.
        if self.capabilities.idempotent && record.deliveries > 0 {
            return match drawn {
                0..12 => Some(SendOutcome::Deferred("try again".into())),
                12..15 => Some(SendOutcome::Throttled("too many".into(), Some(5_000))),
                15..18 => Some(SendOutcome::Unknown("connection lost".into())),
                18..22 => Some(SendOutcome::Refused("idempotency key already used".into())),
                _ => Some(SendOutcome::Accepted(Some("duplicate".into()))),
            };
        }
        match drawn {
            0..4 => {
                record.is_refused = true;
                Some(SendOutcome::Refused("no such address".into()))
            }
            4..12 => Some(SendOutcome::Deferred("try again".into())),
            12..15 => Some(SendOutcome::Throttled("too many".into(), Some(5_000))),
            // The caller receives no definite outcome.
            15..18 => Some(SendOutcome::Unknown("connection lost".into())),
            18..21 => {
                record.deliveries += 1;
                Some(SendOutcome::Unknown("connection lost".into()))
            }
            21..23 => {
                record.deliveries += 1;
                None
            }
            _ => {
                record.deliveries += 1;
                Some(SendOutcome::Accepted(Some("accepted".into())))
            }
        }
    }
}

/// Calls that were sent and have not arrived. The calls of a dispatcher that is killed never
/// arrive.
struct InFlightCalls<'a> {
    provider: &'a SimProvider,
    keys: Vec<SharedText>,
}

impl<'a> InFlightCalls<'a> {
    fn register_calls(provider: &'a SimProvider, keys: Vec<SharedText>) -> Self {
        for key in &keys {
            provider
                .delivery_records()
                .entry(key.clone())
                .or_default()
                .in_flight += 1;
        }
        Self { provider, keys }
    }

    fn mark_arrived(&mut self, key: &SharedText) {
        self.keys.retain(|other| other != key);
        self.provider
            .delivery_records()
            .entry(key.clone())
            .or_default()
            .in_flight -= 1;
    }
}

impl Drop for InFlightCalls<'_> {
    fn drop(&mut self) {
        for key in self.keys.clone() {
            self.mark_arrived(&key);
        }
    }
}

#[async_trait]
impl Provider for SimProvider {
    fn name(&self) -> &str {
        "simulated"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.capabilities
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let mut outcomes = Vec::new();
        let mut in_flight_calls = InFlightCalls::register_calls(
            self,
            batch
                .iter()
                .map(|it| it.idempotency_key().clone())
                .collect(),
        );
        for reservation in batch {
            // The delay may exceed the dispatcher's timeout, which is 30 s here.
            let ms = if self.random.roll_percent(2) {
                60_000
            } else {
                self.random.draw_below(1_500)
            };
            sleep(Duration::from_millis(ms)).await;
            let outcome = self.accept_item(reservation.idempotency_key());
            in_flight_calls.mark_arrived(reservation.idempotency_key());
            sleep(Duration::from_millis(self.random.draw_below(100))).await;
            outcomes.extend(outcome.map(|outcome| (reservation.item_id().clone(), outcome)));
        }
        outcomes
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        sleep(Duration::from_millis(self.random.draw_below(100))).await;
        if self.has_faults.load(Ordering::SeqCst) && self.random.roll_percent(20) {
            return LookupOutcome::Unknown;
        }
        match self.delivery_records().get(&SharedText::from(key)) {
            Some(record) if record.deliveries > 0 => {
                LookupOutcome::Accepted(Some("looked up".into()))
            }
            Some(record) if record.is_refused => LookupOutcome::Refused("no such address".into()),
            _ => LookupOutcome::NotFound,
        }
    }
}
