//! Campaigns, by seed. One that fails prints how to repeat it.

#![expect(clippy::panic, reason = "a seed that fails says so")]

use onward_sim::campaigns::{CampaignSimReport, simulate_campaign};

fn lived(seed: u64) -> CampaignSimReport {
    match simulate_campaign(seed) {
        Ok(report) => report,
        Err(what) => {
            panic!(
                "seed {seed}: {what}\nrepeat with ONWARD_SEED={seed} cargo test -p onward-sim --test campaigns"
            )
        }
    }
}

/// `ONWARD_SEED` runs one, `ONWARD_SEEDS` another number of them.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("ONWARD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ONWARD_SEEDS").unwrap_or(usual),
    }
}

/// Half of them each: the two run side by side.
fn half(half: u64) {
    let mut sum = CampaignSimReport::default();
    for seed in seeds(10_000).filter(|seed| seed % 2 == half) {
        let CampaignSimReport {
            kills,
            stalls,
            in_doubt,
            unserved,
            provider_calls: calls,
            clock_shifts: set,
            resolutions: verdicts,
            redriven,
            cancelled,
            retried,
        } = lived(seed);
        sum.kills += kills;
        sum.stalls += stalls;
        sum.in_doubt += in_doubt;
        sum.unserved += unserved;
        sum.provider_calls += calls;
        sum.clock_shifts += set;
        sum.resolutions += verdicts;
        sum.redriven += redriven;
        sum.cancelled += cancelled;
        sum.retried += retried;
    }
    println!("{sum:?}");
    let is_whole = std::env::var("ONWARD_SEED").is_err() && std::env::var("ONWARD_SEEDS").is_err();
    let was_rough =
        sum.kills > 10_000 && sum.stalls > 1_000 && sum.in_doubt > 500 && sum.unserved > 1_000;
    let was_busy = sum.clock_shifts > 1_000
        && sum.resolutions > 1_000
        && sum.redriven > 500
        && sum.cancelled > 100
        && sum.retried > 1_000;
    assert!(
        !is_whole || was_rough && was_busy,
        "the world was not rough: {sum:?}"
    );
}

#[test]
fn nobody_is_reached_twice_and_nobody_is_forgotten() {
    half(0);
}

#[test]
fn nobody_is_reached_twice_and_nobody_is_forgotten_again() {
    half(1);
}

#[test]
fn a_seed_is_a_history() {
    for seed in 0..20 {
        assert_eq!(simulate_campaign(seed), simulate_campaign(seed));
    }
}
