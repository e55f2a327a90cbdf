//! That each workflow does as much as it is told to, and no more.

use onward::Response;
use onward::prelude::*;
use onward::testing::TestEnv;

use crate::{
    Interrupted, Load, bench_chain, bench_empty, bench_fanout, bench_long, bench_parked,
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
fn steps_are_done_as_often_as_asked_for() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(bench_chain, load(10)), Ok(10));
    assert_eq!(env.calls(bench_step), 10);
    assert_eq!(env.run(bench_fanout, load(100)), Ok(100));
    assert_eq!(env.calls(bench_step), 100);
}

#[test]
fn an_empty_workflow_does_nothing() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(bench_empty, ()), Ok(0));
    assert_eq!(env.calls(bench_step), 0);
}

#[test]
fn long_work_tells_how_long_its_ends_took() {
    let mut env = TestEnv::new();
    env.takes(bench_step, Duration::from_millis(10));
    let ends = env.run(bench_long, load(20)).unwrap();
    assert_eq!((ends.done, ends.first_ms, ends.last_ms), (20, 50.0, 50.0));
}

#[test]
fn a_parked_workflow_goes_on_with_its_signal() {
    let mut env = TestEnv::new();
    env.signal_at(Duration::from_secs(1), "go", &7);
    assert_eq!(env.run(bench_parked, ()).unwrap(), 7);
}

#[test]
fn a_request_goes_out_in_the_middle() {
    let mut env = TestEnv::new();
    env.http("POST http://localhost/effects", |_| {
        Ok(Response::new(200, ""))
    });
    let url = "http://localhost/effects".to_owned();
    assert_eq!(
        env.run(
            bench_recovery,
            Interrupted {
                load: load(10),
                url
            }
        ),
        Ok(10)
    );
    assert_eq!(env.calls(bench_step), 10);
}

#[test]
fn steps_can_be_those_of_somebody_else() {
    let mut env = TestEnv::new();
    env.stub_named("remote_step", |(): ()| Ok(1_u32));
    let load = Load {
        task: Some("remote_step".to_owned()),
        ..load(3)
    };
    assert_eq!(env.run(bench_chain, load), Ok(3));
    assert_eq!(env.calls(bench_step), 0);
}
