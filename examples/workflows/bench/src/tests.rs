//! Each workflow runs the requested number of steps.

use onward::HttpResponse;
use onward::prelude::*;
use onward::testing::TestEnv;

use crate::{
    Load, RecoveryLoad, bench_chain, bench_empty, bench_fanout, bench_long, bench_parked,
    bench_recovery, bench_step,
};

fn load(steps: u32) -> Load {
    Load {
        steps,
        part: 5,
        ..Load::default()
    }
}

#[test]
fn each_step_runs_once() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(bench_chain, load(10)), Ok(10));
    assert_eq!(env.call_count(bench_step), 10);
    assert_eq!(env.run(bench_fanout, load(100)), Ok(100));
    assert_eq!(env.call_count(bench_step), 100);
}

#[test]
fn an_empty_workflow_calls_no_task() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(bench_empty, ()), Ok(0));
    assert_eq!(env.call_count(bench_step), 0);
}

#[test]
fn a_long_chain_times_its_first_and_last_steps() {
    let mut env = TestEnv::new();
    env.set_duration(bench_step, Duration::from_millis(10));
    let times = env.run(bench_long, load(20)).unwrap();
    assert_eq!(
        (times.done, times.first_ms, times.last_ms),
        (20, 50.0, 50.0)
    );
}

#[test]
fn a_parked_workflow_continues_with_its_signal() {
    let mut env = TestEnv::new();
    env.signal_at(Duration::from_secs(1), "go", &7);
    assert_eq!(env.run(bench_parked, ()).unwrap(), 7);
}

#[test]
fn recovery_sends_a_request_between_its_halves() {
    let mut env = TestEnv::new();
    env.stub_http("POST http://localhost/effects", |_| {
        Ok(HttpResponse::new(200, ""))
    });
    let url = "http://localhost/effects".to_owned();
    assert_eq!(
        env.run(
            bench_recovery,
            RecoveryLoad {
                load: load(10),
                url
            }
        ),
        Ok(10)
    );
    assert_eq!(env.call_count(bench_step), 10);
}

#[test]
fn steps_can_call_a_task_of_another_component() {
    let mut env = TestEnv::new();
    env.stub_named("remote_step", |(): ()| Ok(1_u32));
    let load = Load {
        task: Some("remote_step".to_owned()),
        ..load(3)
    };
    assert_eq!(env.run(bench_chain, load), Ok(3));
    assert_eq!(env.call_count(bench_step), 0);
}
