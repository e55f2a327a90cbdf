//! Lets so many pass in which time, altogether and in each domain.
//!
//! For every rate there is the time at which the next one is due (the generic cell rate algorithm): one number, whatever the
//! rate. Somebody passes when all of the numbers allow it, and then all of them move on; or none does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::Timestamp;
use onward_campaign_core::AudienceRecipient;
use onward_campaign_dispatch::{AdmissionGate, SendAdmission};

use crate::rate_limits::{RateLimitRule, RateLimits};

/// Domains of which something is remembered, at most. A domain that waits for nothing is forgotten.
const DOMAINS_MAX: usize = 65_536;

/// How long to wait before one asks again how many share the limits.
const UNKNOWN_NODES_WAIT_US: i64 = 250_000;

/// How long to wait at least for a place among the domains.
const DOMAIN_SLOT_WAIT_US: i64 = 100_000;

/// A provider is left alone for so long at most by those whom it has not told so itself.
const HOLD_US_MAX: i64 = 300_000_000;

/// A clock that is set back by more than this makes a throttle begin anew; less is taken as no time at all.
const CLOCK_STEP_BACK_US: i64 = 60_000_000;

/// Lets so many pass in which time. The time is what it is told.
#[derive(Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    state: Mutex<RateLimiterState>,
    domains_max: usize,
}

#[derive(Debug, Default)]
struct RateLimiterState {
    /// How many share the limits; nobody knows yet if there are none.
    nodes: u32,
    latest_us: i64,
    /// Until when nobody passes, because the provider has said so.
    held_until_us: i64,
    global: GcraArrivalTimes,
    domains: BTreeMap<String, GcraArrivalTimes>,
    /// Until when no further domain can be remembered.
    domains_full_until_us: i64,
}

/// When the next one is due, for each rate; in microseconds since the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct GcraArrivalTimes([i64; 3]);

impl GcraArrivalTimes {
    /// How many microseconds to wait.
    fn wait_us(&self, rates: &RateLimitRule, nodes: u32, now: i64) -> i64 {
        let waits = self
            .0
            .iter()
            .zip(rates.intervals_us())
            .filter_map(|(due, interval)| {
                let interval = shared_interval_us(interval?, nodes);
                Some(
                    due.saturating_sub(interval.saturating_mul(burst_allowance(rates, nodes)))
                        .saturating_sub(now),
                )
            });
        waits.max().unwrap_or(0).max(0)
    }

    /// One has passed.
    fn advance_arrivals(&mut self, rates: &RateLimitRule, nodes: u32, now: i64) {
        for (due, interval) in self.0.iter_mut().zip(rates.intervals_us()) {
            if let Some(interval) = interval {
                *due = (*due)
                    .max(now)
                    .saturating_add(shared_interval_us(interval, nodes));
            }
        }
    }

    /// When nothing of it matters any more.
    fn expires_at_us(&self) -> i64 {
        self.0.into_iter().max().unwrap_or(0)
    }
}

/// The time between two where so many share a rate.
fn shared_interval_us(interval: u64, nodes: u32) -> i64 {
    i64::try_from(interval.saturating_mul(u64::from(nodes))).unwrap_or(i64::MAX)
}

/// How many may come before they are due.
fn burst_allowance(rates: &RateLimitRule, nodes: u32) -> i64 {
    i64::from((rates.burst.unwrap_or(1) / nodes).max(1)) - 1
}

impl RateLimiter {
    /// Lets pass what these allow, for one node.
    pub fn new(limits: &RateLimits) -> Self {
        let mut limits = limits.clone();
        if let Some(domains) = &mut limits.per_domain {
            domains.overrides = domains
                .overrides
                .iter()
                .map(|(name, rates)| (normalize_domain(name), *rates))
                .collect();
        }
        Self {
            limits,
            state: Mutex::new(RateLimiterState {
                nodes: 1,
                ..RateLimiterState::default()
            }),
            domains_max: DOMAINS_MAX,
        }
    }

    /// So many nodes share the limits from now on. Each has its part, and be there ever so many, some of it. As long as nobody
    /// knows how many, nobody passes where there are limits.
    pub fn set_node_count(&self, nodes: Option<NonZeroU32>) {
        self.lock_state().nodes = nodes.map_or(0, NonZeroU32::get);
    }

    /// Lets one pass who is reached at this address; or says how long to wait until it is worth asking again.
    pub fn try_acquire(&self, address: &str, now: Timestamp) -> Result<(), Duration> {
        let wait = self
            .lock_state()
            .acquire_or_wait_us(self, address, now.as_micros());
        if wait == 0 {
            Ok(())
        } else {
            Err(Duration::from_micros(wait.unsigned_abs()))
        }
    }

    /// Lets nobody pass before so much time has gone by, or some minutes: then one may ask again, whatever was said before.
    pub fn pause_for(&self, wait: Duration, now: Timestamp) {
        let mut state = self.lock_state();
        let now = state.observe_clock(now.as_micros());
        let wait = i64::try_from(wait.as_micros())
            .unwrap_or(i64::MAX)
            .min(HOLD_US_MAX);
        state.held_until_us = state.held_until_us.max(now.saturating_add(wait));
    }

    /// What holds for an address beside the limits of the provider, and for which domain.
    fn domain_rule(&self, address: &str) -> Option<(String, RateLimitRule)> {
        let limits = self.limits.per_domain.as_ref()?;
        let domain = normalize_domain(address.rsplit_once('@')?.1);
        let rates = limits
            .overrides
            .get(&domain)
            .copied()
            .unwrap_or_else(|| limits.default_rule());
        rates.has_any_rate().then_some((domain, rates))
    }

    fn lock_state(&self) -> MutexGuard<'_, RateLimiterState> {
        // Whoever panicked has left numbers that are as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateLimiterState {
    /// How many microseconds to wait; nothing if one has passed.
    fn acquire_or_wait_us(&mut self, throttle: &RateLimiter, address: &str, now: i64) -> i64 {
        let now = self.observe_clock(now);
        let (rates, domain) = (
            throttle.limits.provider_rule(),
            throttle.domain_rule(address),
        );
        if self.nodes == 0 && (domain.is_some() || rates.has_any_rate()) {
            return UNKNOWN_NODES_WAIT_US;
        }
        let nodes = self.nodes.max(1);
        let mut wait = self
            .global
            .wait_us(&rates, nodes, now)
            .max(self.held_until_us - now);
        if let Some((name, rates)) = &domain {
            let of_domain = match self.domains.get(name) {
                Some(due) => due.wait_us(rates, nodes, now),
                None => self.wait_for_domain_slot(throttle.domains_max, now),
            };
            wait = wait.max(of_domain);
        }
        if wait == 0 {
            self.global.advance_arrivals(&rates, nodes, now);
            if let Some((name, rates)) = domain {
                self.domains
                    .entry(name)
                    .or_default()
                    .advance_arrivals(&rates, nodes, now);
            }
        }
        wait
    }

    /// The time, which does not go back.
    fn observe_clock(&mut self, now: i64) -> i64 {
        if now.saturating_add(CLOCK_STEP_BACK_US) < self.latest_us {
            *self = Self {
                nodes: self.nodes,
                latest_us: now,
                ..Self::default()
            };
        }
        self.latest_us = self.latest_us.max(now);
        self.latest_us
    }

    /// How long to wait until one more domain can be remembered.
    fn wait_for_domain_slot(&mut self, domains_max: usize, now: i64) -> i64 {
        if self.domains.len() < domains_max {
            return 0;
        }
        if now >= self.domains_full_until_us {
            self.domains.retain(|_, due| due.expires_at_us() > now);
            if self.domains.len() < domains_max {
                return 0;
            }
            let first = self
                .domains
                .values()
                .map(GcraArrivalTimes::expires_at_us)
                .min()
                .unwrap_or(now);
            self.domains_full_until_us = first.max(now.saturating_add(DOMAIN_SLOT_WAIT_US));
        }
        self.domains_full_until_us - now
    }
}

/// A domain as it is compared: a name of other letters and what mail makes of it (`xn--`) are the same.
fn normalize_domain(domain: &str) -> String {
    let domain = domain.trim().trim_end_matches('.');
    idna::domain_to_ascii(domain).unwrap_or_else(|_| domain.to_lowercase())
}

impl AdmissionGate for RateLimiter {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        now: Timestamp,
    ) -> SendAdmission {
        SendAdmission::admit_each(recipients, at_most, |recipient| {
            self.try_acquire(&recipient.address, now)
        })
    }

    fn pause_sends(&self, wait: Duration, now: Timestamp) {
        Self::pause_for(self, wait, now);
    }
}

#[cfg(test)]
#[path = "rate_limiter_tests.rs"]
mod tests;
