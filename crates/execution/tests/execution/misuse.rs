//! Requests that make no sense, and too much of anything: refused, not recorded, the same again in a replay.

use onward_execution::{Execution, Guest, Limits, Progress, Script, Start, Taken, WaitFor};
use onward_journal::{ComponentDigest, ExecutionError, Timestamp};

use crate::engine::{Virtual, id, json, plan, smoothly};

fn refused<T: std::fmt::Debug>(answer: Result<T, ExecutionError>) -> String {
    let error = answer.unwrap_err();
    format!("{} {}", error.kind, error.message)
}

fn confused() -> Box<dyn Guest> {
    Box::new(Script::new(|host| async move {
        let mut said = Vec::new();
        said.push(refused(host.wait(0).await));
        said.push(refused(host.all(&[]).await));
        let random = 0;
        host.random(1).await?;
        said.push(refused(host.wait(random).await));
        said.push(refused(host.random(5_000).await));
        said.push(refused(host.next(7, None).await));
        said.push(refused(host.close(7).await));
        let set = host.join_set().await?;
        said.push(refused(host.wait(set).await));
        let promise = host.schedule("echo", json("1")).await?;
        said.push(refused(host.any(&[promise, promise]).await));
        said.push(refused(host.submit(9, promise).await));
        said.push(refused(host.submit(set, random).await));
        host.submit(set, promise).await?;
        said.push(refused(host.submit(set, promise).await));
        let both = onward_execution::Request::Await { promises: vec![promise, 0], wait: WaitFor::One };
        assert!(matches!(host.ask(both).await, onward_execution::Answer::Refused(_)));
        let timer = host.timer(5).await?;
        said.push(refused(host.submit(set, timer).await));
        assert!(matches!(host.next(set, None).await?, Taken::Result(..)));
        let late = host.schedule("echo", json("1")).await?;
        said.push(refused(host.submit(set, late).await));
        assert_eq!(host.next(set, None).await?, Taken::Empty);
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
        assert_eq!(crate::engine::run(&plan, |_, at| at == point).result, outcome.result);
    }
}

fn limited(limits: Limits, guest: Script) -> Execution {
    let start = Start {
        component_digest: ComponentDigest::of(b"script"),
        input: json("1"),
        parent: None,
        key: None,
        signals: Vec::new(),
    };
    let mut execution = Execution::start(id(), start, Timestamp::EPOCH, limits).unwrap();
    let mut guest = guest;
    let mut world = Virtual { now: Timestamp::EPOCH, logs: Vec::new() };
    assert_eq!(execution.run(&mut guest, &mut world).unwrap(), Progress::Ended);
    execution
}

#[test]
fn too_large_an_input_is_refused_at_the_call_and_too_large_a_result_is_the_failure() {
    let limits = Limits { payload_bytes_max: 10, ..Limits::default() };
    let execution = limited(
        limits,
        Script::new(|host| async move {
            assert!(host.schedule("echo", json("\"12345678\"")).await.is_ok());
            Err(host.schedule("echo", json("\"123456789\"")).await.unwrap_err())
        }),
    );
    let error = execution.result().unwrap().unwrap_err();
    assert_eq!((error.kind.as_str(), &*error.message), ("too_large", "11 bytes of payload, at most 10 are allowed"));
    assert!(!error.retryable);
    let execution = limited(limits, Script::new(|_| async move { Ok(json("\"123456789\"")) }));
    assert_eq!(execution.result().unwrap().unwrap_err().kind.as_str(), "too_large");
}

#[test]
fn a_journal_that_is_full_takes_nothing_but_its_end() {
    let limits = Limits { events_max: 5, ..Limits::default() };
    let execution = limited(
        limits,
        Script::new(|host| async move {
            loop {
                host.now().await?;
            }
        }),
    );
    assert_eq!(execution.result().unwrap().unwrap_err().kind.as_str(), "journal_full");
    assert_eq!(execution.journal().events().len(), 6);
}
