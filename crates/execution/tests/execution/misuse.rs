//! Invalid requests and exceeded limits: refused, not recorded, the same again in
//! a replay.

use onward_base::Timestamp;
use onward_execution::{
    AwaitMode, Execution, ExecutionLimits, ExecutionProgress, ExecutionStart, Guest, GuestLogLevel,
    GuestRequest, JoinSetNext, ScriptedGuest,
};
use onward_journal::{ComponentDigest, ExecutionError};

use crate::engine::{Virtual, id, json, plan, run_without_crash};

fn refused<T: std::fmt::Debug>(answer: Result<T, ExecutionError>) -> String {
    let error = answer.unwrap_err();
    format!("{} {}", error.kind, error.message)
}

fn misusing_guest() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let mut errors = Vec::new();
        errors.push(refused(host.await_promise(0).await));
        errors.push(refused(host.await_all(&[]).await));
        let random = 0;
        host.random_bytes(1).await?;
        errors.push(refused(host.await_promise(random).await));
        errors.push(refused(host.random_bytes(5_000).await));
        errors.push(refused(host.next_result(7, None).await));
        errors.push(refused(host.close_join_set(7).await));
        let set = host.create_join_set().await?;
        errors.push(refused(host.await_promise(set).await));
        let promise = host.schedule_function("echo", json("1")).await?;
        errors.push(refused(host.await_any(&[promise, promise]).await));
        errors.push(refused(host.submit_to_join_set(9, promise).await));
        errors.push(refused(host.submit_to_join_set(set, random).await));
        host.submit_to_join_set(set, promise).await?;
        errors.push(refused(host.submit_to_join_set(set, promise).await));
        let both = onward_execution::GuestRequest::Await {
            promises: vec![promise, 0],
            wait: AwaitMode::One,
        };
        assert!(matches!(
            host.send_request(both).await,
            onward_execution::GuestResponse::Refused(_)
        ));
        let timer = host.schedule_timer(5).await?;
        errors.push(refused(host.submit_to_join_set(set, timer).await));
        assert!(matches!(
            host.next_result(set, None).await?,
            JoinSetNext::Result(..)
        ));
        let late = host.schedule_function("echo", json("1")).await?;
        errors.push(refused(host.submit_to_join_set(set, late).await));
        assert_eq!(host.next_result(set, None).await?, JoinSetNext::Empty);
        Ok(json(&format!("{errors:?}")))
    }))
}

#[test]
fn a_guest_that_misuses_the_host_gets_an_error() {
    let plan = plan(misusing_guest, &[("echo", |input, _| Ok(input.clone()))]);
    let outcome = run_without_crash(&plan);
    let errors = outcome.result.clone().unwrap();
    for expected in [
        "misuse promise 0 does not exist",
        "misuse there is nothing to wait for",
        "operation 0 is neither an invocation nor a timer",
        "5000 bytes of randomness, at most 4096",
        "join set 7 does not exist",
        "operation 1 is neither an invocation nor a timer",
        "promise 2 is named twice",
        "join set 9 does not exist",
        "operation 0 is not an invocation",
        "promise 2 is in a join set already",
        "operation 3 is not an invocation",
        "results were taken from the join set already",
    ] {
        assert!(
            errors.as_str().contains(expected),
            "{expected}: {}",
            errors.as_str()
        );
    }
    for point in 1..30 {
        assert_eq!(
            crate::engine::run(&plan, |_, at| at == point).result,
            outcome.result
        );
    }
}

fn limited(limits: ExecutionLimits, guest: ScriptedGuest) -> Execution {
    let start = ExecutionStart {
        component_digest: ComponentDigest::from_component(b"script"),
        input: json("1"),
        parent: None,
        key: None,
        signals: Vec::new(),
    };
    let mut execution = Execution::start(id(), start, Timestamp::EPOCH, limits).unwrap();
    let mut guest = guest;
    let mut world = Virtual {
        now: Timestamp::EPOCH,
        logs: Vec::new(),
    };
    assert_eq!(
        execution.run(&mut guest, &mut world).unwrap(),
        ExecutionProgress::Ended
    );
    execution
}

#[test]
fn an_input_over_the_limit_is_refused_and_a_result_over_the_limit_is_a_failure() {
    let limits = ExecutionLimits {
        payload_bytes_max: 10,
        ..ExecutionLimits::default()
    };
    let execution = limited(
        limits,
        ScriptedGuest::new(|host| async move {
            assert!(
                host.schedule_function("echo", json("\"12345678\""))
                    .await
                    .is_ok()
            );
            Err(host
                .schedule_function("echo", json("\"123456789\""))
                .await
                .unwrap_err())
        }),
    );
    let error = execution.result().unwrap().unwrap_err();
    assert_eq!(
        (error.kind.as_str(), &*error.message),
        ("too_large", "11 bytes of payload, at most 10 are allowed")
    );
    assert!(!error.retryable);
    let execution = limited(
        limits,
        ScriptedGuest::new(|_| async move { Ok(json("\"123456789\"")) }),
    );
    assert_eq!(
        execution.result().unwrap().unwrap_err().kind.as_str(),
        "too_large"
    );
}

#[test]
fn a_full_journal_accepts_only_its_terminal_event() {
    let limits = ExecutionLimits {
        events_max: 5,
        ..ExecutionLimits::default()
    };
    let execution = limited(
        limits,
        ScriptedGuest::new(|host| async move {
            loop {
                host.now().await?;
            }
        }),
    );
    assert_eq!(
        execution.result().unwrap().unwrap_err().kind.as_str(),
        "journal_full"
    );
    assert_eq!(execution.journal().events().len(), 6);
}

#[test]
fn a_guest_that_only_records_small_events_fills_a_batch() {
    let mut execution = crate::engine::start();
    let mut guest = ScriptedGuest::new(|host| async move {
        loop {
            host.now().await?;
        }
    });
    let mut world = Virtual {
        now: Timestamp::EPOCH,
        logs: Vec::new(),
    };
    for _ in 0..3 {
        execution.take_events();
        let progress = execution.run(&mut guest, &mut world).unwrap();
        assert_eq!(progress, ExecutionProgress::BatchFull);
        assert_eq!(execution.untaken_count(), 10_000);
    }
}

#[test]
fn a_guest_that_logs_much_pauses_so_that_its_lines_can_be_written() {
    let mut execution = crate::engine::start();
    let mut guest = ScriptedGuest::new(|host| async move {
        loop {
            host.send_request(GuestRequest::Log {
                level: GuestLogLevel::Info,
                message: "x".repeat(1 << 10).as_str().into(),
            })
            .await;
        }
    });
    let mut world = Virtual {
        now: Timestamp::EPOCH,
        logs: Vec::new(),
    };
    for pauses in 1..4 {
        let progress = execution.run(&mut guest, &mut world).unwrap();
        assert_eq!(progress, ExecutionProgress::Paused);
        assert!(world.logs.len() <= pauses * 256, "{}", world.logs.len());
    }
}
