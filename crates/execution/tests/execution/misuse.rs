//! Requests that make no sense, and too much of anything: refused, not recorded, the same again in
//! a replay.

use onward_base::Timestamp;
use onward_execution::{
    AwaitMode, Execution, ExecutionLimits, ExecutionProgress, ExecutionStart, Guest, JoinSetNext,
    ScriptedGuest,
};
use onward_journal::{ComponentDigest, ExecutionError};

use crate::engine::{Virtual, id, json, plan, smoothly};

fn refused<T: std::fmt::Debug>(answer: Result<T, ExecutionError>) -> String {
    let error = answer.unwrap_err();
    format!("{} {}", error.kind, error.message)
}

fn confused() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let mut said = Vec::new();
        said.push(refused(host.await_promise(0).await));
        said.push(refused(host.await_all(&[]).await));
        let random = 0;
        host.random_bytes(1).await?;
        said.push(refused(host.await_promise(random).await));
        said.push(refused(host.random_bytes(5_000).await));
        said.push(refused(host.next_result(7, None).await));
        said.push(refused(host.close_join_set(7).await));
        let set = host.create_join_set().await?;
        said.push(refused(host.await_promise(set).await));
        let promise = host.schedule_function("echo", json("1")).await?;
        said.push(refused(host.await_any(&[promise, promise]).await));
        said.push(refused(host.submit_to_join_set(9, promise).await));
        said.push(refused(host.submit_to_join_set(set, random).await));
        host.submit_to_join_set(set, promise).await?;
        said.push(refused(host.submit_to_join_set(set, promise).await));
        let both = onward_execution::GuestRequest::Await {
            promises: vec![promise, 0],
            wait: AwaitMode::One,
        };
        assert!(matches!(
            host.send_request(both).await,
            onward_execution::GuestResponse::Refused(_)
        ));
        let timer = host.schedule_timer(5).await?;
        said.push(refused(host.submit_to_join_set(set, timer).await));
        assert!(matches!(
            host.next_result(set, None).await?,
            JoinSetNext::Result(..)
        ));
        let late = host.schedule_function("echo", json("1")).await?;
        said.push(refused(host.submit_to_join_set(set, late).await));
        assert_eq!(host.next_result(set, None).await?, JoinSetNext::Empty);
        Ok(json(&format!("{said:?}")))
    }))
}

#[test]
fn a_confused_guest_is_told_what_is_wrong() {
    let plan = plan(confused, &[("echo", |input, _| Ok(input.clone()))]);
    let outcome = smoothly(&plan);
    let said = outcome.result.clone().unwrap();
    for words in [
        "misuse there is no promise 0",
        "misuse there is nothing to wait for",
        "operation 0 is neither an invocation nor a timer",
        "5000 bytes of randomness, at most 4096",
        "there is no join set 7",
        "operation 1 is neither an invocation nor a timer",
        "promise 2 is named twice",
        "there is no join set 9",
        "operation 0 is not an invocation",
        "promise 2 is in a join set already",
        "operation 3 is not an invocation",
        "results were taken from the join set already",
    ] {
        assert!(said.as_str().contains(words), "{words}: {}", said.as_str());
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
fn too_large_an_input_is_refused_at_the_call_and_too_large_a_result_is_the_failure() {
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
fn a_journal_that_is_full_takes_nothing_but_its_end() {
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
