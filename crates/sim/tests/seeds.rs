//! Seeds. One that fails prints how to repeat it.

#![expect(clippy::panic, reason = "a seed that fails says so")]

use onward_sim::{ShardSimulation, SimFaults, SimReport};

/// Everything goes wrong now and then.
const ROUGH: SimFaults = SimFaults {
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
        Err(what) => {
            panic!("seed {seed}: {what}\nrepeat with ONWARD_SEED={seed} cargo test -p onward-sim")
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

#[test]
fn a_quiet_world_does_everything_once() {
    let report = run(1, SimFaults::default());
    assert_eq!(report.nodes, 1);
}

/// Half of them each: the two run side by side.
fn rough_worlds(half: u64) {
    let (mut nodes, mut drained, mut given, mut reported) = (0, 0, 0, 0);
    for seed in seeds(1_000).filter(|seed| seed % 2 == half) {
        let report = run(seed, ROUGH);
        nodes += report.nodes;
        drained += report.drained;
        given += report.tasks_matched;
        reported += report.tasks_reported;
    }
    let is_whole = std::env::var("ONWARD_SEED").is_err() && std::env::var("ONWARD_SEEDS").is_err();
    assert!(
        !is_whole || nodes > 750,
        "{nodes} nodes: the world was not rough"
    );
    assert!(
        !is_whole || drained > 250,
        "{drained} nodes gave the shard up in order: the world was too rough"
    );
    assert!(
        !is_whole || given.min(reported) > 250,
        "{given} tasks were handed over, the end of {reported} was told"
    );
}

#[test]
fn a_rough_world_comes_to_the_same_end() {
    rough_worlds(0);
}

#[test]
fn a_rough_world_comes_to_the_same_end_again() {
    rough_worlds(1);
}

#[test]
fn a_seed_is_a_history() {
    for seed in 0..20 {
        assert_eq!(run(seed, ROUGH), run(seed, ROUGH));
    }
}
