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
fn pass_times(throttle: &RateLimiter, addresses: &[&str], mut now: i64) -> Vec<i64> {
    let pass = |address: &&str| {
        while let Err(wait) = throttle.try_acquire(address, at_micros(now)) {
            assert!(!wait.is_zero());
            now += i64::try_from(wait.as_micros()).unwrap();
        }
        now
    };
    addresses.iter().map(pass).collect()
}

#[test]
fn without_limits_everybody_passes() {
    let throttle = RateLimiter::new(&RateLimits::default());
    assert_eq!(pass_times(&throttle, &["a@x.org"; 1_000], 0), [0; 1_000]);
}

#[test]
fn those_who_wait_as_told_pass_evenly() {
    let throttle = RateLimiter::new(&per_second(4));
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 4], 0),
        [0, 250_000, 500_000, 750_000]
    );
}

#[test]
fn after_a_quiet_time_a_burst_passes_at_once() {
    let throttle = RateLimiter::new(&RateLimits {
        burst: Some(3),
        ..per_second(1)
    });
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 5], 0),
        [0, 0, 0, 1_000_000, 2_000_000]
    );
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 4], 60_000_000),
        [60_000_000, 60_000_000, 60_000_000, 61_000_000]
    );
}

#[test]
fn nobody_passes_while_the_provider_wants_to_be_left_alone() {
    let throttle = RateLimiter::new(&per_second(10));
    throttle.pause_for(Duration::from_secs(7), at_micros(1_000_000));
    throttle.pause_for(Duration::from_secs(2), at_micros(2_000_000));
    assert_eq!(
        pass_times(&throttle, &["a@x.org", "b@y.org"], 3_000_000),
        [8_000_000, 8_100_000]
    );
    assert_eq!(
        pass_times(&throttle, &["a@x.org"], 20_000_000),
        [20_000_000],
        "it is over when it is over"
    );
}

#[test]
fn the_slowest_of_several_limits_holds() {
    let throttle = RateLimiter::new(&RateLimits {
        per_minute: Some(6),
        per_hour: Some(60),
        ..per_second(100)
    });
    assert_eq!(pass_times(&throttle, &["a@x.org"; 2], 0), [0, 60_000_000]);
}

#[test]
fn a_domain_that_is_full_takes_nothing_from_the_provider() {
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
    let throttle = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        burst: Some(3),
        ..per_second(1)
    });
    assert_eq!(throttle.try_acquire("a@x.org", at_micros(0)), Ok(()));
    for _ in 0..10 {
        assert_eq!(
            throttle.try_acquire("b@X.ORG", at_micros(0)),
            Err(Duration::from_secs(1))
        );
    }
    // Two of the provider's burst of three remain.
    assert_eq!(throttle.try_acquire("a@big.example", at_micros(0)), Ok(()));
    assert_eq!(
        throttle.try_acquire("b@big.example", at_micros(0)),
        Err(Duration::from_millis(500))
    );
    assert_eq!(throttle.try_acquire("+49 30 123456", at_micros(0)), Ok(()));
    assert_eq!(
        throttle.try_acquire("c@y.org", at_micros(0)),
        Err(Duration::from_secs(1))
    );
}

#[test]
fn a_domain_is_the_same_however_a_document_writes_it() {
    let overrides = [(
        "Bücher.example".to_owned(),
        RateLimitRule {
            per_second: Some(2),
            ..RateLimitRule::default()
        },
    )]
    .into();
    let throttle = RateLimiter::new(&RateLimits {
        per_domain: Some(DomainRateLimits {
            overrides,
            ..DomainRateLimits::default()
        }),
        ..RateLimits::default()
    });
    assert_eq!(
        throttle.try_acquire("a@xn--bcher-kva.example", at_micros(0)),
        Ok(())
    );
    assert_eq!(
        throttle.try_acquire("b@BÜCHER.example", at_micros(0)),
        Err(Duration::from_millis(500))
    );
}

#[test]
fn nodes_share_the_limits_and_each_has_some_of_them() {
    let throttle = RateLimiter::new(&RateLimits {
        burst: Some(4),
        ..per_second(10)
    });
    throttle.set_node_count(NonZeroU32::new(2));
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 4], 0),
        [0, 0, 200_000, 400_000]
    );
    throttle.set_node_count(NonZeroU32::new(1_000));
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 2], 60_000_000),
        [60_000_000, 160_000_000]
    );
    throttle.set_node_count(None);
    assert_eq!(
        throttle.try_acquire("a@x.org", at_micros(900_000_000)),
        Err(Duration::from_millis(250)),
        "nobody knows how many share"
    );
    throttle.set_node_count(NonZeroU32::new(1));
    assert_eq!(
        pass_times(&throttle, &["a@x.org"; 4], 900_000_000),
        [900_000_000; 4]
    );
}

#[test]
fn a_million_domains_are_not_remembered() {
    let per_domain = DomainRateLimits {
        per_second: Some(1),
        ..DomainRateLimits::default()
    };
    let throttle = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    for number in 0..1_000_000_i64 {
        assert_eq!(
            throttle.try_acquire(&format!("a@{number}.example"), at_micros(number * 100)),
            Ok(())
        );
    }
    assert!(throttle.lock_state().domains.len() <= super::DOMAINS_MAX);
}

#[test]
fn where_no_domain_can_be_forgotten_another_waits_for_a_place() {
    let per_domain = DomainRateLimits {
        per_minute: Some(1),
        ..DomainRateLimits::default()
    };
    let mut throttle = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    throttle.domains_max = 2;
    assert_eq!(
        pass_times(&throttle, &["a@x.org", "a@y.org", "a@z.org"], 0),
        [0, 0, 60_000_000]
    );
    assert_eq!(throttle.lock_state().domains.len(), 1);
}

#[test]
fn a_clock_that_is_set_back_stops_nobody_for_long() {
    let throttle = RateLimiter::new(&per_second(1));
    assert_eq!(
        throttle.try_acquire("a@x.org", at_micros(3_600_000_000)),
        Ok(())
    );
    assert_eq!(
        throttle.try_acquire("a@x.org", at_micros(3_599_000_000)),
        Err(Duration::from_secs(1))
    );
    assert_eq!(throttle.try_acquire("a@x.org", at_micros(0)), Ok(()));
}

#[test]
fn as_a_gate_it_lets_those_pass_who_can_in_their_order() {
    let per_domain = DomainRateLimits {
        per_second: Some(1),
        ..DomainRateLimits::default()
    };
    let throttle = RateLimiter::new(&RateLimits {
        per_domain: Some(per_domain),
        ..RateLimits::default()
    });
    let somebody = |address: &str| AudienceRecipient {
        id: address.to_owned(),
        address: address.to_owned(),
        data: Default::default(),
    };
    let all = ["a@x.org", "b@x.org", "c@y.org", "d@z.org"].map(somebody);
    let all: Vec<&AudienceRecipient> = all.iter().collect();
    assert_eq!(
        throttle.admit_recipients(&all, 2, at_micros(0)),
        SendAdmission::Admitted(vec![0, 2])
    );
    assert_eq!(
        throttle.admit_recipients(&all, 9, at_micros(0)),
        SendAdmission::Admitted(vec![3])
    );
    assert_eq!(
        throttle.admit_recipients(&all, 9, at_micros(400_000)),
        SendAdmission::Delayed(Duration::from_millis(600))
    );
    assert_eq!(
        throttle.admit_recipients(&[], 9, at_micros(0)),
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
fn is_within_rule(rates: &RateLimitRule, passed: &[i64]) -> bool {
    let spare = rates.burst.unwrap_or(1) as usize - 1;
    let windows = [
        (rates.per_second, 1),
        (rates.per_minute, 60),
        (rates.per_hour, 3_600),
    ];
    windows
        .into_iter()
        .filter_map(|(count, seconds)| Some((count? as usize, seconds * 1_000_000_i64)))
        .all(|(count, length)| {
            let within = |(place, from): (usize, &i64)| {
                passed[place..]
                    .iter()
                    .filter(|it| **it < from + length)
                    .count()
            };
            passed
                .iter()
                .enumerate()
                .map(within)
                .all(|found| found <= count + spare)
        })
}

proptest! {
    #[test]
    fn in_any_window_no_more_pass_than_may(
        (all, each) in (any_rule(), any_rule()),
        nodes in 1_u32..4,
        asked in prop::collection::vec((0_i64..400_000, 0_usize..3, any::<bool>()), 1..300),
    ) {
        let per_domain = DomainRateLimits {
            per_second: each.per_second, per_minute: each.per_minute, per_hour: each.per_hour, burst: each.burst,
            ..DomainRateLimits::default()
        };
        let limits = RateLimits {
            per_second: all.per_second, per_minute: all.per_minute, per_hour: all.per_hour, burst: all.burst,
            per_domain: Some(per_domain),
        };
        let throttles: Vec<RateLimiter> = (0..nodes).map(|_| RateLimiter::new(&limits)).collect();
        throttles.iter().for_each(|throttle| throttle.set_node_count(NonZeroU32::new(nodes)));
        let (mut now, mut passed, mut by_domain) = (0, Vec::new(), vec![Vec::new(); 3]);
        for (place, (pause, domain, waits)) in asked.into_iter().enumerate() {
            now += pause;
            let (throttle, address) = (&throttles[place % throttles.len()], format!("a@{domain}.example"));
            let mut tries = 0;
            while let Err(wait) = throttle.try_acquire(&address, at_micros(now)) {
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
                passed.push(now);
                by_domain[domain].push(now);
            }
        }
        // Each node has a share of the burst, but at least 1.
        let with_nodes = |rates: &RateLimitRule| RateLimitRule { burst: Some(rates.burst.unwrap_or(1).max(nodes)), ..*rates };
        prop_assert!(is_within_rule(&with_nodes(&all), &passed));
        prop_assert!(by_domain.iter().all(|passed| is_within_rule(&with_nodes(&each), passed)));
    }
}
