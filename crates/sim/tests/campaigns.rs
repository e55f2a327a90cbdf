//! Simulations of campaigns, by seed. A failing seed prints the command that repeats it.

#![expect(clippy::panic, reason = "a failing seed is reported by a panic")]

use onward_sim::campaigns::{CampaignSimReport, simulate_campaign};

fn simulate(seed: u64) -> CampaignSimReport {
    match simulate_campaign(seed) {
        Ok(report) => report,
        Err(failure) => {
            panic!(
                "seed {seed}: {failure}\nrepeat with ONWARD_SEED={seed} cargo test -p onward-sim --test campaigns"
            )
        }
    }
}

/// The seeds to run: `ONWARD_SEED` selects one, `ONWARD_SEEDS` sets their number and
/// `ONWARD_FIRST_SEED` the first of them.
fn seeds(default_count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("ONWARD_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("ONWARD_FIRST_SEED").unwrap_or(0);
            first..first + number("ONWARD_SEEDS").unwrap_or(default_count)
        }
    }
}

/// Simulates the even (0) or the odd (1) seeds, so that two tests run concurrently.
fn simulate_half(half: u64) {
    let mut sum = CampaignSimReport::default();
    for seed in seeds(10_000).filter(|seed| seed % 2 == half) {
        let CampaignSimReport {
            kills,
            stalls,
            in_doubt,
            undelivered,
            provider_calls,
            clock_shifts,
            resolutions,
            redriven,
            cancelled,
            retried,
            late_answers,
        } = simulate(seed);
        sum.kills += kills;
        sum.stalls += stalls;
        sum.in_doubt += in_doubt;
        sum.undelivered += undelivered;
        sum.provider_calls += provider_calls;
        sum.clock_shifts += clock_shifts;
        sum.resolutions += resolutions;
        sum.redriven += redriven;
        sum.cancelled += cancelled;
        sum.retried += retried;
        sum.late_answers += late_answers;
    }
    println!("{sum:?}");
    let is_full_run =
        std::env::var("ONWARD_SEED").is_err() && std::env::var("ONWARD_SEEDS").is_err();
    let has_enough_faults =
        sum.kills > 10_000 && sum.stalls > 1_000 && sum.in_doubt > 500 && sum.undelivered > 1_000;
    let has_enough_actions = sum.clock_shifts > 1_000
        && sum.resolutions > 1_000
        && sum.redriven > 500
        && sum.cancelled > 100
        && sum.retried > 1_000;
    assert!(
        !is_full_run || has_enough_faults && has_enough_actions,
        "too few faults or operator actions: {sum:?}"
    );
}

#[test]
fn every_recipient_is_reached_once_or_has_a_reason_even_seeds() {
    simulate_half(0);
}

#[test]
fn every_recipient_is_reached_once_or_has_a_reason_odd_seeds() {
    simulate_half(1);
}

#[test]
fn a_seed_reproduces_its_history() {
    for seed in 0..20 {
        assert_eq!(simulate_campaign(seed), simulate_campaign(seed));
    }
}
