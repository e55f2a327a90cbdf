//! Tests of the rate limiter: no time window admits more sends than the limits allow, and every
//! send is admitted eventually.

use std::num::NonZeroU32;
use std::time::Duration;

use onward_base::Timestamp;
use onward_campaign_core::AudienceRecipient;
use onward_campaign_dispatch::{AdmissionGate as _, SendAdmission};
use proptest::prelude::{Strategy, any, prop, prop_assert, proptest};

use super::RateLimiter;
use crate::rate_limits::{DomainRateLimits, RateLimitRule, RateLimits};

const BEGIN_US: i64 = 1_767_225_600_000_000;

fn at_micros(us: i64) -> Timestamp {
    Timestamp::from_micros(BEGIN_US + us).unwrap()
}

fn per_second(count: u32) -> RateLimits {
    RateLimits {
        per_second: Some(count),
        ..RateLimits::default()
    }
}

/// Returns the times at which these sends are admitted, if they come in order and each waits for
/// the returned time.
fn admission_times(limiter: &RateLimiter, addresses: &[&str], mut now: i64) -> Vec<i64> {
    let admit = |address: &&str| {
        while let Err(wait) = limiter.try_acquire(address, at_micros(now)) {
            assert!(!wait.is_zero());
            now += i64::try_from(wait.as_micros()).unwrap();
        }
        now
    };
    addresses.iter().map(admit).collect()
}

#[test]
fn without_limits_every_send_is_admitted() {
    let limiter = RateLimiter::new(&RateLimits::default());
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 1_000], 0),
        [0; 1_000]
    );
}

#[test]
fn sends_that_wait_as_returned_are_evenly_spaced() {
    let limiter = RateLimiter::new(&per_second(4));
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 4], 0),
        [0, 250_000, 500_000, 750_000]
    );
}

#[test]
fn a_burst_is_admitted_at_once_after_an_idle_time() {
    let limiter = RateLimiter::new(&RateLimits {
        burst: Some(3),
        ..per_second(1)
    });
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 5], 0),
        [0, 0, 0, 1_000_000, 2_000_000]
    );
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 4], 60_000_000),
        [60_000_000, 60_000_000, 60_000_000, 61_000_000]
    );
}

#[test]
fn no_send_is_admitted_during_a_pause() {
    let limiter = RateLimiter::new(&per_second(10));
    limiter.pause_for(Duration::from_secs(7), at_micros(1_000_000));
    limiter.pause_for(Duration::from_secs(2), at_micros(2_000_000));
    assert_eq!(
        admission_times(&limiter, &["a@x.org", "b@y.org"], 3_000_000),
        [8_000_000, 8_100_000]
    );
    assert_eq!(
        admission_times(&limiter, &["a@x.org"], 20_000_000),
        [20_000_000],
        "the pause has ended"
    );
}

#[test]
fn the_strictest_of_several_limits_applies() {
    let limiter = RateLimiter::new(&RateLimits {
        per_minute: Some(6),
        per_hour: Some(60),
        ..per_second(100)
    });
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 2], 0),
        [0, 60_000_000]
    );
}

#[test]
fn a_send_rejected_by_its_domain_does_not_use_the_provider_limit() {
    let overrides = [(
        "Big.Example.".to_owned(),
        RateLimitRule {
            per_second: Some(2),
            ..RateLimitRule::default()
        },
    )]
    .into();
    let per_domain = DomainRateLimits {
        per_second: Some(1),
        overrides,
        ..DomainRateLimits::default()
    };
    let limiter = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        burst: Some(3),
        ..per_second(1)
    });
    assert_eq!(limiter.try_acquire("a@x.org", at_micros(0)), Ok(()));
    for _ in 0..10 {
        assert_eq!(
            limiter.try_acquire("b@X.ORG", at_micros(0)),
            Err(Duration::from_secs(1))
        );
    }
    // Two of the provider's burst of three remain.
    assert_eq!(limiter.try_acquire("a@big.example", at_micros(0)), Ok(()));
    assert_eq!(
        limiter.try_acquire("b@big.example", at_micros(0)),
        Err(Duration::from_millis(500))
    );
    assert_eq!(limiter.try_acquire("+49 30 123456", at_micros(0)), Ok(()));
    assert_eq!(
        limiter.try_acquire("c@y.org", at_micros(0)),
        Err(Duration::from_secs(1))
    );
}

#[test]
fn the_unicode_and_ascii_forms_of_a_domain_share_a_limit() {
    let overrides = [(
        "Bücher.example".to_owned(),
        RateLimitRule {
            per_second: Some(2),
            ..RateLimitRule::default()
        },
    )]
    .into();
    let limiter = RateLimiter::new(&RateLimits {
        per_domain: Some(DomainRateLimits {
            overrides,
            ..DomainRateLimits::default()
        }),
        ..RateLimits::default()
    });
    assert_eq!(
        limiter.try_acquire("a@xn--bcher-kva.example", at_micros(0)),
        Ok(())
    );
    assert_eq!(
        limiter.try_acquire("b@BÜCHER.example", at_micros(0)),
        Err(Duration::from_millis(500))
    );
}

#[test]
fn nodes_share_the_limits_and_no_share_is_zero() {
    let limiter = RateLimiter::new(&RateLimits {
        burst: Some(4),
        ..per_second(10)
    });
    limiter.set_node_count(NonZeroU32::new(2));
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 4], 0),
        [0, 0, 200_000, 400_000]
    );
    limiter.set_node_count(NonZeroU32::new(1_000));
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 2], 60_000_000),
        [60_000_000, 160_000_000]
    );
    limiter.set_node_count(None);
    assert_eq!(
        limiter.try_acquire("a@x.org", at_micros(900_000_000)),
        Err(Duration::from_millis(250)),
        "the number of nodes is unknown"
    );
    limiter.set_node_count(NonZeroU32::new(1));
    assert_eq!(
        admission_times(&limiter, &["a@x.org"; 4], 900_000_000),
        [900_000_000; 4]
    );
}

#[test]
fn the_number_of_domains_with_state_is_bounded() {
    let per_domain = DomainRateLimits {
        per_second: Some(1),
        ..DomainRateLimits::default()
    };
    let limiter = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    for number in 0..1_000_000_i64 {
        assert_eq!(
            limiter.try_acquire(&format!("a@{number}.example"), at_micros(number * 100)),
            Ok(())
        );
    }
    assert!(limiter.lock_state().domains.len() <= super::DOMAINS_MAX);
}

#[test]
fn a_new_domain_waits_until_the_state_of_another_expires() {
    let per_domain = DomainRateLimits {
        per_minute: Some(1),
        ..DomainRateLimits::default()
    };
    let mut limiter = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    limiter.domains_max = 2;
    assert_eq!(
        admission_times(&limiter, &["a@x.org", "a@y.org", "a@z.org"], 0),
        [0, 0, 60_000_000]
    );
    assert_eq!(limiter.lock_state().domains.len(), 1);
}

#[test]
fn a_clock_that_is_set_back_does_not_block_sends() {
    let limiter = RateLimiter::new(&per_second(1));
    assert_eq!(
        limiter.try_acquire("a@x.org", at_micros(3_600_000_000)),
        Ok(())
    );
    assert_eq!(
        limiter.try_acquire("a@x.org", at_micros(3_599_000_000)),
        Err(Duration::from_secs(1))
    );
    assert_eq!(limiter.try_acquire("a@x.org", at_micros(0)), Ok(()));
}

#[test]
fn as_a_gate_it_admits_recipients_in_their_order() {
    let per_domain = DomainRateLimits {
        per_second: Some(1),
        ..DomainRateLimits::default()
    };
    let limiter = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    let recipient = |address: &str| AudienceRecipient {
        id: address.to_owned(),
        address: address.to_owned(),
        data: Default::default(),
    };
    let all = ["a@x.org", "b@x.org", "c@y.org", "d@z.org"].map(recipient);
    let all: Vec<&AudienceRecipient> = all.iter().collect();
    assert_eq!(
        limiter.admit_recipients(&all, 2, at_micros(0)),
        SendAdmission::Admitted(vec![0, 2])
    );
    assert_eq!(
        limiter.admit_recipients(&all, 9, at_micros(0)),
        SendAdmission::Admitted(vec![3])
    );
    assert_eq!(
        limiter.admit_recipients(&all, 9, at_micros(400_000)),
        SendAdmission::Delayed(Duration::from_millis(600))
    );
    assert_eq!(
        limiter.admit_recipients(&[], 9, at_micros(0)),
        SendAdmission::Admitted(Vec::new())
    );
}

fn any_rule() -> impl Strategy<Value = RateLimitRule> {
    let some = |max: u32| prop::option::of(1..max);
    (some(50), some(300), some(2_000), some(10)).prop_map(
        |(per_second, per_minute, per_hour, burst)| RateLimitRule {
            per_second,
            per_minute,
            per_hour,
            burst,
        },
    )
}

/// Returns whether no time window has more sends than a rate and its burst allow.
fn is_within_rule(rule: &RateLimitRule, admitted: &[i64]) -> bool {
    let spare = rule.burst.unwrap_or(1) as usize - 1;
    let windows = [
        (rule.per_second, 1),
        (rule.per_minute, 60),
        (rule.per_hour, 3_600),
    ];
    windows
        .into_iter()
        .filter_map(|(count, seconds)| Some((count? as usize, seconds * 1_000_000_i64)))
        .all(|(count, length)| {
            let within = |(place, from): (usize, &i64)| {
                admitted[place..]
                    .iter()
                    .filter(|it| **it < from + length)
                    .count()
            };
            admitted
                .iter()
                .enumerate()
                .map(within)
                .all(|found| found <= count + spare)
        })
}

proptest! {
    #[test]
    fn no_window_admits_more_sends_than_the_limits(
        (all, each) in (any_rule(), any_rule()),
        nodes in 1_u32..4,
        sends in prop::collection::vec((0_i64..400_000, 0_usize..3, any::<bool>()), 1..300),
    ) {
        let per_domain = DomainRateLimits {
            per_second: each.per_second, per_minute: each.per_minute, per_hour: each.per_hour, burst: each.burst,
            ..DomainRateLimits::default()
        };
        let limits = RateLimits {
            per_second: all.per_second, per_minute: all.per_minute, per_hour: all.per_hour, burst: all.burst,
            per_domain: Some(per_domain),
        };
        let limiters: Vec<RateLimiter> = (0..nodes).map(|_| RateLimiter::new(&limits)).collect();
        limiters.iter().for_each(|limiter| limiter.set_node_count(NonZeroU32::new(nodes)));
        let (mut now, mut admitted, mut by_domain) = (0, Vec::new(), vec![Vec::new(); 3]);
        for (place, (pause, domain, waits)) in sends.into_iter().enumerate() {
            now += pause;
            let (limiter, address) = (&limiters[place % limiters.len()], format!("a@{domain}.example"));
            let mut tries = 0;
            while let Err(wait) = limiter.try_acquire(&address, at_micros(now)) {
                if !waits {
                    break;
                }
                // A send that waits for the returned time is admitted, because no other send comes
                // in between.
                tries += 1;
                prop_assert!(tries <= 1);
                now += i64::try_from(wait.as_micros()).unwrap();
            }
            if waits {
                admitted.push(now);
                by_domain[domain].push(now);
            }
        }
        // Each node has a share of the burst, but at least 1.
        let with_nodes = |rule: &RateLimitRule| RateLimitRule { burst: Some(rule.burst.unwrap_or(1).max(nodes)), ..*rule };
        prop_assert!(is_within_rule(&with_nodes(&all), &admitted));
        prop_assert!(by_domain.iter().all(|admitted| is_within_rule(&with_nodes(&each), admitted)));
    }
}
