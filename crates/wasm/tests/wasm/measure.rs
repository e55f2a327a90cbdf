//! Figures, for `cargo test --release -p onward-wasm -- --ignored --nocapture`.

use std::fs;
use std::time::{Duration, Instant};

use onward_execution::{Answer, Guest, Request, Turn};
use onward_journal::Timestamp;
use onward_wasm::{Config, Runtime, WorkflowLimits};

use crate::{guests, own, payload};

/// Asks for the time for ever.
const CLOCK: &str = "(loop (drop (call $now)) (br 0)) (unreachable)";

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn timed(times: u32, mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        work();
    }
    start.elapsed() / times
}

/// Pages that are in memory and are not those of a file, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    field("RssAnon:") + field("RssShmem:")
}

fn measure(what: &str, bytes: &[u8], function: &str, input: &str) {
    const SUSPENDED: u32 = 2_000;
    let runtime = Runtime::new(Config { workflows_max: SUSPENDED + 100, ..Config::default() }).unwrap();
    let compile = timed(1, || drop(runtime.load(bytes).unwrap()));
    let component = runtime.load(bytes).unwrap();
    let start = || component.workflow(function, &payload(input), own(), WorkflowLimits::default());
    let begin = timed(2_000, || assert!(matches!(start().turn(None), Turn::Asks(_))));
    let before = resident();
    let guests: Vec<Box<dyn Guest>> = (0..SUSPENDED)
        .map(|_| {
            let mut guest = start();
            assert!(matches!(guest.turn(None), Turn::Asks(_)));
            guest
        })
        .collect();
    let each = (resident() - before) / guests.len();
    println!("{what}: compile {compile:?}, instantiate and first turn {begin:?}, {each} bytes for one that waits");
}

#[test]
#[ignore = "measures"]
fn figures_of_a_small_guest() {
    measure("WAT", &guests::with_call(guests::TIMER), "flow", "3");
    let runtime = Runtime::new(Config { workflows_max: 8, ..Config::default() }).unwrap();
    let component = runtime.load(&guests::with_call(CLOCK)).unwrap();
    let mut guest = component.workflow("flow", &payload("3"), own(), WorkflowLimits::default());
    assert_eq!(guest.turn(None), Turn::Asks(Request::Now));
    let turn = timed(1_000_000, || {
        guest.turn(Some(Answer::Time(Timestamp::EPOCH)));
    });
    println!("one turn {turn:?}");
}

#[test]
#[ignore = "measures"]
fn figures_of_a_guest_with_the_sdk() {
    for (function, input) in [("chain", "{\"steps\":1000000,\"work\":4}"), ("sleeper", "5")] {
        measure(&format!("SDK, `{function}`"), &crate::sdk::bytes(), function, input);
    }
}
