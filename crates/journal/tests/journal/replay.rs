//! A guest runs live, with random events that include cancellation; then it runs again, answered
//! from the journal alone. Every call must return the same.

use onward_journal::Journal;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::guest_script::{Call, Deadline, LATE, NO_RESULT, run};
use super::live_host::World;
use super::replay_host::Recording;
use super::replay_index::ReplayIndex;
use super::script::*;

fn deadline() -> impl Strategy<Value = Deadline> {
    prop::sample::select(vec![Deadline::Set, Deadline::Unset])
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        1 => Just(Call::Random),
        1 => Just(Call::Clock),
        1 => Just(Call::Sleep),
        1 => Just(Call::Invoke),
        3 => Just(Call::Schedule),
        2 => (0..12_u8).prop_map(Call::AwaitAny),
        1 => (0..12_u8).prop_map(Call::AwaitAll),
        2 => (prop::sample::select(vec!["go", "stop"]), deadline())
            .prop_map(|(name, deadline)| Call::AwaitSignal(name, deadline)),
        1 => Just(Call::CreateSet),
        3 => (0..3_u8, 0..12_u8).prop_map(|(set, number)| Call::Submit(set, number)),
        3 => (0..3_u8, deadline()).prop_map(|(set, deadline)| Call::Next(set, deadline)),
    ];
    prop::collection::vec(call, 1..30)
}

#[test]
fn a_replay_gives_a_guest_the_same_answers_as_the_live_run() {
    let config = Config {
        cases: 600,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let (mut cancelled, mut cleaned, mut results, mut late) = (0, 0, 0, 0);
    let counts = std::cell::RefCell::new((&mut cancelled, &mut cleaned, &mut results, &mut late));
    TestRunner::new_with_rng(config, rng)
        .run(&(calls(), any::<u64>()), |(calls, seed)| {
            let mut state = seed | 1;
            let chance = Box::new(move |below: u32| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u32 % below
            });
            let mut world = World {
                journal: Journal::new(own()),
                chance,
                now_ms: 0,
            };
            world
                .journal
                .append(record(&[started()]).remove(0))
                .unwrap();
            let live = run(&calls, &mut world);
            let replay = ReplayIndex::new(own(), world.journal.events());
            let (awaits, taken) = (0, Default::default());
            let (submitted, members) = Default::default();
            let again = run(
                &calls,
                &mut Recording {
                    replay,
                    awaits,
                    taken,
                    submitted,
                    members,
                },
            );
            prop_assert_eq!(&again, &live);
            let mut counts = counts.borrow_mut();
            let stopped = live.iter().position(|answer| answer == "cancelled");
            *counts.0 += usize::from(stopped.is_some());
            *counts.1 += usize::from(stopped.is_some_and(|at| at + 3 < live.len()));
            *counts.2 += live.len();
            *counts.3 += live
                .iter()
                .filter(|answer| [LATE, NO_RESULT].contains(&answer.as_str()))
                .count();
            Ok(())
        })
        .unwrap();
    println!(
        "{results} answers, {late} of them timeouts; {cancelled} guests cancelled, {cleaned} of them with cleanup"
    );
    assert!(late > 100, "too few answers are timeouts: {late}");
    assert!(
        cancelled > 100 && cleaned > 50,
        "too few guests are cancelled: {cancelled}, {cleaned} with cleanup"
    );
}
