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

use super::SharedRandom;

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

pub(super) struct SimProvider {
    random: SharedRandom,
    capabilities: ProviderCapabilities,
    records: Mutex<BTreeMap<SharedText, DeliveryRecord>>,
    is_fault_free: AtomicBool,
}

impl SimProvider {
    pub(super) fn new(chance: SharedRandom, nature: ProviderCapabilities) -> Self {
        Self {
            random: chance,
            capabilities: nature,
            records: Mutex::default(),
            is_fault_free: AtomicBool::new(false),
        }
    }

    /// Switches fault injection off (`true`) or on (`false`).
    pub(super) fn set_fault_free(&self, is_calm: bool) {
        self.is_fault_free.store(is_calm, Ordering::SeqCst);
    }

    pub(super) fn delivery_records(&self) -> MutexGuard<'_, BTreeMap<SharedText, DeliveryRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes a call for an item; `None` if no answer is returned for it.
    fn accept_item(&self, key: &SharedText) -> Option<SendOutcome> {
        let mut known = self.delivery_records();
        let it = known.entry(key.clone()).or_default();
        it.calls += 1;
        let rough = if self.is_fault_free.load(Ordering::SeqCst) {
            100
        } else {
            self.random.draw_below(100)
        };
        // An idempotent provider has already accepted the key, but may return another answer before
        // it checks for that.
        if self.capabilities.idempotent && it.deliveries > 0 {
            return match rough {
                0..12 => Some(SendOutcome::Deferred("try again".into())),
                12..15 => Some(SendOutcome::Throttled("too many".into(), Some(5_000))),
                15..18 => Some(SendOutcome::Unknown("cut off".into())),
                18..22 => Some(SendOutcome::Refused("that key was used".into())),
                _ => Some(SendOutcome::Accepted(Some("before".into()))),
            };
        }
        match rough {
            0..4 => {
                it.is_refused = true;
                Some(SendOutcome::Refused("no such address".into()))
            }
            4..12 => Some(SendOutcome::Deferred("try again".into())),
            12..15 => Some(SendOutcome::Throttled("too many".into(), Some(5_000))),
            // The caller receives no definite answer.
            15..18 => Some(SendOutcome::Unknown("cut off".into())),
            18..21 => {
                it.deliveries += 1;
                Some(SendOutcome::Unknown("cut off".into()))
            }
            21..23 => {
                it.deliveries += 1;
                None
            }
            _ => {
                it.deliveries += 1;
                Some(SendOutcome::Accepted(Some("taken".into())))
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
    fn register_calls(ledger: &'a SimProvider, keys: Vec<SharedText>) -> Self {
        for key in &keys {
            ledger
                .delivery_records()
                .entry(key.clone())
                .or_default()
                .in_flight += 1;
        }
        Self {
            provider: ledger,
            keys,
        }
    }

    fn mark_arrived(&mut self, key: &SharedText) {
        self.keys.retain(|it| it != key);
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
        "ledger"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.capabilities
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let mut answers = Vec::new();
        let mut on_their_way = InFlightCalls::register_calls(
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
            let answer = self.accept_item(reservation.idempotency_key());
            on_their_way.mark_arrived(reservation.idempotency_key());
            sleep(Duration::from_millis(self.random.draw_below(100))).await;
            answers.extend(answer.map(|answer| (reservation.item_id().clone(), answer)));
        }
        answers
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        sleep(Duration::from_millis(self.random.draw_below(100))).await;
        if !self.is_fault_free.load(Ordering::SeqCst) && self.random.roll_percent(20) {
            return LookupOutcome::Unknown;
        }
        match self.delivery_records().get(&SharedText::from(key)) {
            Some(known) if known.deliveries > 0 => {
                LookupOutcome::Accepted(Some("looked up".into()))
            }
            Some(known) if known.is_refused => LookupOutcome::Refused("no such address".into()),
            _ => LookupOutcome::NotFound,
        }
    }
}
