//! GCRA rate limiter, global and per recipient domain.
//!
//! The generic cell rate algorithm keeps one number per rate, whatever the rate: the time at which
//! the next send is due. A send is admitted if all numbers allow it, and then all of them advance;
//! otherwise none does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::Timestamp;
use onward_campaign_core::AudienceRecipient;
use onward_campaign_dispatch::{AdmissionGate, SendAdmission};

use crate::rate_limits::{RateLimitRule, RateLimits};

/// Maximum number of domains with state. The limiter drops the state of a domain once it no longer
/// delays any send.
const DOMAINS_MAX: usize = 65_536;

/// Wait before the next try while the number of nodes that share the limits is unknown.
const UNKNOWN_NODES_WAIT_US: i64 = 250_000;

/// Minimum wait for a free slot among the domains.
const DOMAIN_SLOT_WAIT_US: i64 = 100_000;

/// Maximum duration of a pause. Items that the provider has not throttled itself wait no longer
/// than this.
const PAUSE_US_MAX: i64 = 300_000_000;

/// If the clock is set back by more than this, the limiter resets its state; smaller steps back
/// count as no elapsed time.
const CLOCK_STEP_BACK_US: i64 = 60_000_000;

/// Rate limiter of one provider on one node. The caller passes the current time.
#[derive(Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    state: Mutex<RateLimiterState>,
    domains_max: usize,
}

#[derive(Debug, Default)]
struct RateLimiterState {
    /// Number of nodes that share the limits; 0 while it is unknown.
    nodes: u32,
    latest_us: i64,
    /// End of the pause that the provider asked for; no send is admitted before.
    paused_until_us: i64,
    global: GcraArrivalTimes,
    domains: BTreeMap<String, GcraArrivalTimes>,
    /// Time until which no further domain can be added.
    domains_full_until_us: i64,
}

/// The theoretical arrival time of the next send for each rate, in microseconds since the Unix
/// epoch.
#[derive(Debug, Clone, Copy, Default)]
struct GcraArrivalTimes([i64; 3]);

impl GcraArrivalTimes {
    /// Returns the microseconds until a send conforms to all rates; 0 if it does now.
    fn wait_us(&self, rule: &RateLimitRule, nodes: u32, now: i64) -> i64 {
        let waits = self
            .0
            .iter()
            .zip(rule.intervals_us())
            .filter_map(|(due, interval)| {
                let interval = shared_interval_us(interval?, nodes);
                Some(
                    due.saturating_sub(interval.saturating_mul(burst_allowance(rule, nodes)))
                        .saturating_sub(now),
                )
            });
        waits.max().unwrap_or(0).max(0)
    }

    /// Records one admitted send.
    fn advance_arrivals(&mut self, rule: &RateLimitRule, nodes: u32, now: i64) {
        for (due, interval) in self.0.iter_mut().zip(rule.intervals_us()) {
            if let Some(interval) = interval {
                *due = (*due)
                    .max(now)
                    .saturating_add(shared_interval_us(interval, nodes));
            }
        }
    }

    /// The time from which this state no longer affects any send.
    fn expires_at_us(&self) -> i64 {
        self.0.into_iter().max().unwrap_or(0)
    }
}

/// The interval between two sends of one node, if `nodes` nodes share the rate.
fn shared_interval_us(interval: u64, nodes: u32) -> i64 {
    i64::try_from(interval.saturating_mul(u64::from(nodes))).unwrap_or(i64::MAX)
}

/// Number of sends that this node may admit before they are due.
fn burst_allowance(rule: &RateLimitRule, nodes: u32) -> i64 {
    i64::from((rule.burst.unwrap_or(1) / nodes).max(1)) - 1
}

impl RateLimiter {
    /// Creates a rate limiter with these limits, for one node.
    pub fn new(limits: &RateLimits) -> Self {
        let mut limits = limits.clone();
        if let Some(domains) = &mut limits.per_domain {
            domains.overrides = domains
                .overrides
                .iter()
                .map(|(name, rule)| (normalize_domain(name), *rule))
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

    /// Sets the number of nodes that share the limits. Each node has an equal share, which is never
    /// zero, however many nodes there are. While the number is unknown (`None`), no send is
    /// admitted where limits apply.
    pub fn set_node_count(&self, nodes: Option<NonZeroU32>) {
        self.lock_state().nodes = nodes.map_or(0, NonZeroU32::get);
    }

    /// Admits one send to this address, or returns the time to wait before the next try.
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

    /// Admits no send for this time, at most five minutes: after that a new try is allowed,
    /// whatever the provider asked for.
    pub fn pause_for(&self, wait: Duration, now: Timestamp) {
        let mut state = self.lock_state();
        let now = state.observe_clock(now.as_micros());
        let wait = i64::try_from(wait.as_micros())
            .unwrap_or(i64::MAX)
            .min(PAUSE_US_MAX);
        state.paused_until_us = state.paused_until_us.max(now.saturating_add(wait));
    }

    /// Returns the domain of an address and the rule of the domain, which applies in addition to
    /// the rule of the provider.
    fn domain_rule(&self, address: &str) -> Option<(String, RateLimitRule)> {
        let limits = self.limits.per_domain.as_ref()?;
        let domain = normalize_domain(address.rsplit_once('@')?.1);
        let rule = limits
            .overrides
            .get(&domain)
            .copied()
            .unwrap_or_else(|| limits.default_rule());
        rule.has_any_rate().then_some((domain, rule))
    }

    fn lock_state(&self) -> MutexGuard<'_, RateLimiterState> {
        // A panic while the lock was held leaves usable numbers, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateLimiterState {
    /// Admits one send and returns 0, or returns the microseconds to wait.
    fn acquire_or_wait_us(&mut self, limiter: &RateLimiter, address: &str, now: i64) -> i64 {
        let now = self.observe_clock(now);
        let (rule, domain) = (limiter.limits.provider_rule(), limiter.domain_rule(address));
        if self.nodes == 0 && (domain.is_some() || rule.has_any_rate()) {
            return UNKNOWN_NODES_WAIT_US;
        }
        let nodes = self.nodes.max(1);
        let mut wait = self
            .global
            .wait_us(&rule, nodes, now)
            .max(self.paused_until_us - now);
        if let Some((name, rule)) = &domain {
            let domain_wait = match self.domains.get(name) {
                Some(due) => due.wait_us(rule, nodes, now),
                None => self.wait_for_domain_slot(limiter.domains_max, now),
            };
            wait = wait.max(domain_wait);
        }
        if wait == 0 {
            self.global.advance_arrivals(&rule, nodes, now);
            if let Some((name, rule)) = domain {
                self.domains
                    .entry(name)
                    .or_default()
                    .advance_arrivals(&rule, nodes, now);
            }
        }
        wait
    }

    /// Returns the current time, which never goes back. Resets the state after a large step back of
    /// the clock.
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

    /// Returns the microseconds until one more domain can be added; 0 if it can be added now.
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

/// Normalizes a domain for comparison: an internationalized name and its ASCII form (`xn--`) are
/// equal.
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
