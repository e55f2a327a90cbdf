//! Lets so many pass in which time, altogether and in each domain.
//!
//! For every rate there is the time at which the next one is due (the generic cell rate algorithm): one number, whatever the
//! rate. Somebody passes when all of the numbers allow it, and then all of them move on; or none does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_dispatcher::{Admission, Gate, Recipient};
use onward_journal::Timestamp;

use crate::limits::{Limits, Rates};

/// Domains of which something is remembered, at most. A domain that waits for nothing is forgotten.
const DOMAINS_MAX: usize = 65_536;

/// How long to wait before one asks again how many share the limits.
const SHARED_US: i64 = 250_000;

/// How long to wait at least for a place among the domains.
const PLACE_US: i64 = 100_000;

/// A provider is left alone for so long at most by those whom it has not told so itself.
const HELD_US_MAX: i64 = 300_000_000;

/// A clock that is set back by more than this makes a throttle begin anew; less is taken as no time at all.
const BACK_US: i64 = 60_000_000;

/// Lets so many pass in which time. The time is what it is told.
#[derive(Debug)]
pub struct Throttle {
    limits: Limits,
    state: Mutex<State>,
    domains_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// How many share the limits; nobody knows yet if there are none.
    nodes: u32,
    latest: i64,
    /// Until when nobody passes, because the provider has said so.
    held_until: i64,
    all: Due,
    domains: BTreeMap<String, Due>,
    /// Until when no further domain can be remembered.
    full_until: i64,
}

/// When the next one is due, for each rate; in microseconds since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Due([i64; 3]);

impl Due {
    /// How many microseconds to wait.
    fn wait(&self, rates: &Rates, nodes: u32, now: i64) -> i64 {
        let waits = self.0.iter().zip(rates.intervals_us()).filter_map(|(due, interval)| {
            let interval = shared(interval?, nodes);
            Some(due.saturating_sub(interval.saturating_mul(spare(rates, nodes))).saturating_sub(now))
        });
        waits.max().unwrap_or(0).max(0)
    }

    /// One has passed.
    fn advance(&mut self, rates: &Rates, nodes: u32, now: i64) {
        for (due, interval) in self.0.iter_mut().zip(rates.intervals_us()) {
            if let Some(interval) = interval {
                *due = (*due).max(now).saturating_add(shared(interval, nodes));
            }
        }
    }

    /// When nothing of it matters any more.
    fn is_over_at(&self) -> i64 {
        self.0.into_iter().max().unwrap_or(0)
    }
}

/// The time between two where so many share a rate.
fn shared(interval: u64, nodes: u32) -> i64 {
    i64::try_from(interval.saturating_mul(u64::from(nodes))).unwrap_or(i64::MAX)
}

/// How many may come before they are due.
fn spare(rates: &Rates, nodes: u32) -> i64 {
    i64::from((rates.burst.unwrap_or(1) / nodes).max(1)) - 1
}

impl Throttle {
    /// Lets pass what these allow, for one node.
    pub fn new(limits: &Limits) -> Self {
        let mut limits = limits.clone();
        if let Some(domains) = &mut limits.per_domain {
            domains.overrides = domains.overrides.iter().map(|(name, rates)| (normal(name), *rates)).collect();
        }
        Self { limits, state: Mutex::new(State { nodes: 1, ..State::default() }), domains_max: DOMAINS_MAX }
    }

    /// So many nodes share the limits from now on. Each has its part, and be there ever so many, some of it. As long as nobody
    /// knows how many, nobody passes where there are limits.
    pub fn share(&self, nodes: Option<NonZeroU32>) {
        self.state().nodes = nodes.map_or(0, NonZeroU32::get);
    }

    /// Lets one pass who is reached at this address; or says how long to wait until it is worth asking again.
    pub fn take(&self, address: &str, now: Timestamp) -> Result<(), Duration> {
        let wait = self.state().take(self, address, now.as_micros());
        if wait == 0 { Ok(()) } else { Err(Duration::from_micros(wait.unsigned_abs())) }
    }

    /// Lets nobody pass before so much time has gone by, or some minutes: then one may ask again, whatever was said before.
    pub fn hold(&self, wait: Duration, now: Timestamp) {
        let mut state = self.state();
        let now = state.observe(now.as_micros());
        let wait = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX).min(HELD_US_MAX);
        state.held_until = state.held_until.max(now.saturating_add(wait));
    }

    /// What holds for an address beside the limits of the provider, and for which domain.
    fn domain_of(&self, address: &str) -> Option<(String, Rates)> {
        let limits = self.limits.per_domain.as_ref()?;
        let domain = normal(address.rsplit_once('@')?.1);
        let rates = limits.overrides.get(&domain).copied().unwrap_or_else(|| limits.rates());
        rates.are_any().then_some((domain, rates))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has left numbers that are as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many microseconds to wait; nothing if one has passed.
    fn take(&mut self, throttle: &Throttle, address: &str, now: i64) -> i64 {
        let now = self.observe(now);
        let (rates, domain) = (throttle.limits.rates(), throttle.domain_of(address));
        if self.nodes == 0 && (domain.is_some() || rates.are_any()) {
            return SHARED_US;
        }
        let nodes = self.nodes.max(1);
        let mut wait = self.all.wait(&rates, nodes, now).max(self.held_until - now);
        if let Some((name, rates)) = &domain {
            let of_domain = match self.domains.get(name) {
                Some(due) => due.wait(rates, nodes, now),
                None => self.wait_for_place(throttle.domains_max, now),
            };
            wait = wait.max(of_domain);
        }
        if wait == 0 {
            self.all.advance(&rates, nodes, now);
            if let Some((name, rates)) = domain {
                self.domains.entry(name).or_default().advance(&rates, nodes, now);
            }
        }
        wait
    }

    /// The time, which does not go back.
    fn observe(&mut self, now: i64) -> i64 {
        if now.saturating_add(BACK_US) < self.latest {
            *self = Self { nodes: self.nodes, latest: now, ..Self::default() };
        }
        self.latest = self.latest.max(now);
        self.latest
    }

    /// How long to wait until one more domain can be remembered.
    fn wait_for_place(&mut self, domains_max: usize, now: i64) -> i64 {
        if self.domains.len() < domains_max {
            return 0;
        }
        if now >= self.full_until {
            self.domains.retain(|_, due| due.is_over_at() > now);
            if self.domains.len() < domains_max {
                return 0;
            }
            let first = self.domains.values().map(Due::is_over_at).min().unwrap_or(now);
            self.full_until = first.max(now.saturating_add(PLACE_US));
        }
        self.full_until - now
    }
}

/// A domain as it is compared: a name of other letters and what mail makes of it (`xn--`) are the same.
fn normal(domain: &str) -> String {
    let domain = domain.trim().trim_end_matches('.');
    idna::domain_to_ascii(domain).unwrap_or_else(|_| domain.to_lowercase())
}

impl Gate for Throttle {
    fn admit(&self, recipients: &[&Recipient], at_most: usize, now: Timestamp) -> Admission {
        Admission::of(recipients, at_most, |recipient| self.take(&recipient.address, now))
    }

    fn hold(&self, wait: Duration, now: Timestamp) {
        Self::hold(self, wait, now);
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
