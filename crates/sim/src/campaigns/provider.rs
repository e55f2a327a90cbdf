//! The provider, and what it knows: whom it was called for, and what it has taken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Found};
use onward_dispatcher::{Nature, Provider, Reservation};
use onward_journal::Text;
use tokio::time::sleep;

use super::Chance;

/// What the provider knows of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// How often it was called with it.
    pub(super) calls: u32,
    /// How often it has taken it.
    pub(super) taken: u32,
    /// Whether it has refused it for good.
    pub(super) is_refused: bool,
    /// Calls with it that are on their way: nobody can know yet what becomes of them.
    pub(super) on_their_way: u32,
}

pub(super) struct Ledger {
    chance: Chance,
    nature: Nature,
    known: Mutex<BTreeMap<Text, Known>>,
    is_calm: AtomicBool,
}

impl Ledger {
    pub(super) fn new(chance: Chance, nature: Nature) -> Self {
        Self { chance, nature, known: Mutex::default(), is_calm: AtomicBool::new(false) }
    }

    /// Whether it does what it should.
    pub(super) fn be_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::SeqCst);
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<Text, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does with an item.
    fn take(&self, key: &Text) -> Option<Answer> {
        let mut known = self.known();
        let it = known.entry(key.clone()).or_default();
        it.calls += 1;
        let rough = if self.is_calm.load(Ordering::SeqCst) { 100 } else { self.chance.below(100) };
        // Whoever takes each key once has taken it, and may say something else all the same before it looks.
        if self.nature.takes_keys_once && it.taken > 0 {
            return match rough {
                0..12 => Some(Answer::Later("try again".into())),
                12..15 => Some(Answer::Busy("too many".into(), Some(5_000))),
                15..18 => Some(Answer::Unknown("cut off".into())),
                18..22 => Some(Answer::Refused("that key was used".into())),
                _ => Some(Answer::Accepted(Some("before".into()))),
            };
        }
        match rough {
            0..4 => {
                it.is_refused = true;
                Some(Answer::Refused("no such address".into()))
            }
            4..12 => Some(Answer::Later("try again".into())),
            12..15 => Some(Answer::Busy("too many".into(), Some(5_000))),
            // Nobody hears what became of it.
            15..18 => Some(Answer::Unknown("cut off".into())),
            18..21 => {
                it.taken += 1;
                Some(Answer::Unknown("cut off".into()))
            }
            21..23 => {
                it.taken += 1;
                None
            }
            _ => {
                it.taken += 1;
                Some(Answer::Accepted(Some("taken".into())))
            }
        }
    }
}

/// Calls that have left and not arrived. Those of whoever is killed never do.
struct OnTheirWay<'a> {
    ledger: &'a Ledger,
    keys: Vec<Text>,
}

impl<'a> OnTheirWay<'a> {
    fn begin(ledger: &'a Ledger, keys: Vec<Text>) -> Self {
        for key in &keys {
            ledger.known().entry(key.clone()).or_default().on_their_way += 1;
        }
        Self { ledger, keys }
    }

    fn arrived(&mut self, key: &Text) {
        self.keys.retain(|it| it != key);
        self.ledger.known().entry(key.clone()).or_default().on_their_way -= 1;
    }
}

impl Drop for OnTheirWay<'_> {
    fn drop(&mut self) {
        for key in self.keys.clone() {
            self.arrived(&key);
        }
    }
}

#[async_trait]
impl Provider for Ledger {
    fn name(&self) -> &str {
        "ledger"
    }

    fn nature(&self) -> Nature {
        self.nature
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        let mut answers = Vec::new();
        let mut on_their_way = OnTheirWay::begin(self, batch.iter().map(|it| it.key().clone()).collect());
        for reservation in batch {
            // It may take until after the patience of whoever asks, and is asked all the same.
            let ms = if self.chance.percent(2) { 60_000 } else { self.chance.below(1_500) };
            sleep(Duration::from_millis(ms)).await;
            let answer = self.take(reservation.key());
            on_their_way.arrived(reservation.key());
            sleep(Duration::from_millis(self.chance.below(100))).await;
            answers.extend(answer.map(|answer| (reservation.item().clone(), answer)));
        }
        answers
    }

    async fn look(&self, key: &str) -> Found {
        sleep(Duration::from_millis(self.chance.below(100))).await;
        if !self.is_calm.load(Ordering::SeqCst) && self.chance.percent(20) {
            return Found::Unsure;
        }
        match self.known().get(&Text::from(key)) {
            Some(known) if known.taken > 0 => Found::Accepted(Some("looked up".into())),
            Some(known) if known.is_refused => Found::Refused("no such address".into()),
            _ => Found::Nothing,
        }
    }
}
