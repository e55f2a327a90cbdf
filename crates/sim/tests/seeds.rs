//! Simulations of a shard, by seed. A failing seed prints the command that repeats it.

#![expect(clippy::panic, reason = "a failing seed is reported by a panic")]

use onward_sim::{ShardSimulation, SimFaults, SimReport};

/// Every kind of fault is injected.
const ALL_FAULTS: SimFaults = SimFaults {
    crash: 4,
    stop: 2,
    drain: 4,
    commit_fails: 20,
    commit_unknown: 20,
    read_fails: 50,
};

fn run(seed: u64, faults: SimFaults) -> SimReport {
    match ShardSimulation::new(seed, 2, faults).run() {
        Ok(report) => report,
        Err(failure) => {
            panic!(
                "seed {seed}: {failure}\nrepeat with ONWARD_SEED={seed} cargo test -p onward-sim"
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

#[test]
fn without_faults_one_node_owns_the_shard() {
    let report = run(1, SimFaults::default());
    assert_eq!(report.nodes, 1);
}

/// Simulates the even (0) or the odd (1) seeds, so that two tests run concurrently.
fn simulate_half(half: u64) {
    let (mut nodes, mut drained, mut matched, mut reported) = (0, 0, 0, 0);
    for seed in seeds(1_000).filter(|seed| seed % 2 == half) {
        let report = run(seed, ALL_FAULTS);
        nodes += report.nodes;
        drained += report.drained;
        matched += report.tasks_matched;
        reported += report.tasks_reported;
    }
    let is_full_run =
        std::env::var("ONWARD_SEED").is_err() && std::env::var("ONWARD_SEEDS").is_err();
    assert!(
        !is_full_run || nodes > 750,
        "too few faults: only {nodes} nodes"
    );
    assert!(
        !is_full_run || drained > 250,
        "too many faults: only {drained} nodes drained"
    );
    assert!(
        !is_full_run || matched.min(reported) > 250,
        "only {matched} tasks were matched, and the ends of {reported} reported"
    );
}

#[test]
fn faults_do_not_change_the_results_even_seeds() {
    simulate_half(0);
}

#[test]
fn faults_do_not_change_the_results_odd_seeds() {
    simulate_half(1);
}

#[test]
fn a_seed_reproduces_its_history() {
    for seed in 0..20 {
        assert_eq!(run(seed, ALL_FAULTS), run(seed, ALL_FAULTS));
    }
}
