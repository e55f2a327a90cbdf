//! A guest that takes another path than the recorded one is found out at the first step, and
//! nothing is recorded.

use onward_base::{Payload, Timestamp};
use onward_execution::{
    AwaitMode, Execution, ExecutionLimits, ExecutionProgress, Guest, ScriptHost, ScriptedGuest,
};
use onward_journal::{ExecutionError, InvokeResult, Journal};

use crate::engine::{Virtual, json};

/// The execution after its first run, up to a wait.
fn recorded() -> Execution {
    let mut execution = crate::engine::start();
    let mut world = world();
    let mut guest = ScriptedGuest::new(|host| async move {
        host.random_bytes(4).await?;
        let first = host.schedule_function("a", json("1")).await?;
        let set = host.create_join_set().await?;
        let second = host.schedule_function("b", json("2")).await?;
        host.submit_to_join_set(set, second).await?;
        host.await_promise(first).await
    });
    assert_eq!(
        execution.run(&mut guest, &mut world).unwrap(),
        ExecutionProgress::Blocked
    );
    execution
}

fn world() -> Virtual {
    Virtual {
        now: Timestamp::EPOCH,
        logs: Vec::new(),
    }
}

fn replayed(mut guest: ScriptedGuest) -> (ExecutionProgress, Execution) {
    let recorded = recorded();
    let events = recorded.journal().events().to_vec();
    let mut again = Execution::recover(
        Journal::recover(recorded.id(), events).unwrap(),
        ExecutionLimits::default(),
    );
    let before = again.journal().events().len();
    let progress = again.run(&mut guest, &mut world()).unwrap();
    assert_eq!(
        again.journal().events().len(),
        before,
        "nothing is recorded"
    );
    (progress, again)
}

fn sequence(progress: &ExecutionProgress) -> u64 {
    match progress {
        ExecutionProgress::Diverged(divergence) => divergence.sequence,
        other => panic!("{other:?}"),
    }
}

async fn beginning(host: &ScriptHost) -> Result<u32, ExecutionError> {
    host.random_bytes(4).await?;
    host.schedule_function("a", json("1")).await
}

#[test]
fn the_same_code_repeats_the_journal() {
    let guest = ScriptedGuest::new(|host| async move {
        let first = beginning(&host).await?;
        let set = host.create_join_set().await?;
        let second = host.schedule_function("b", json("2")).await?;
        host.submit_to_join_set(set, second).await?;
        host.await_promise(first).await
    });
    assert_eq!(replayed(guest).0, ExecutionProgress::Blocked);
}

#[test]
fn a_changed_order_name_input_or_length_is_detected() {
    let order =
        ScriptedGuest::new(|host| async move { host.invoke_function("a", json("1")).await });
    assert_eq!(sequence(&replayed(order).0), 1);
    let length = ScriptedGuest::new(|host| async move {
        host.random_bytes(5).await?;
        Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(length).0), 1);
    let name = ScriptedGuest::new(|host| async move {
        host.random_bytes(4).await?;
        host.invoke_function("b", json("1")).await
    });
    assert_eq!(sequence(&replayed(name).0), 2);
    let input = ScriptedGuest::new(|host| async move {
        host.random_bytes(4).await?;
        host.invoke_function("a", json("2")).await
    });
    let (progress, _) = replayed(input);
    assert_eq!(sequence(&progress), 2);
    let ExecutionProgress::Diverged(divergence) = progress else {
        panic!()
    };
    assert_eq!(
        divergence.to_string(),
        "sequence 2 records InvokeScheduled(\"root.1\", \"a\", 1), the function asks for an invocation of a with 2"
    );
}

#[test]
fn a_changed_wait_or_member_and_an_early_end_are_detected() {
    async fn up_to_submit(host: &ScriptHost) -> Result<(u32, u32), ExecutionError> {
        let first = beginning(host).await?;
        let set = host.create_join_set().await?;
        host.schedule_function("b", json("2")).await?;
        Ok((first, set))
    }
    let member = ScriptedGuest::new(|host| async move {
        let (first, set) = up_to_submit(&host).await?;
        host.submit_to_join_set(set, first).await?;
        Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(member).0), 5);
    let wait = ScriptedGuest::new(|host| async move {
        let (first, set) = up_to_submit(&host).await?;
        host.submit_to_join_set(set, first + 2).await?;
        match host
            .send_request(onward_execution::GuestRequest::Await {
                promises: vec![first],
                wait: AwaitMode::All,
            })
            .await
        {
            onward_execution::GuestResponse::Outcome(outcome) => outcome,
            _ => Ok(Payload::null()),
        }
    });
    assert_eq!(sequence(&replayed(wait).0), 6);
    let end = ScriptedGuest::new(|host| async move {
        beginning(&host).await?;
        InvokeResult::Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(end).0), 3);
}

#[test]
fn a_guest_can_be_replaced_by_a_new_one() {
    let mut execution = recorded();
    execution.rewind_guest();
    let mut again = ScriptedGuest::new(|host| async move {
        let first = beginning(&host).await?;
        let set = host.create_join_set().await?;
        let second = host.schedule_function("b", json("2")).await?;
        host.submit_to_join_set(set, second).await?;
        host.await_promise(first).await
    });
    assert_eq!(
        execution.run(&mut again, &mut world()).unwrap(),
        ExecutionProgress::Blocked
    );
    let guest: &mut dyn Guest = &mut again;
    assert_eq!(
        execution.run(guest, &mut world()).unwrap(),
        ExecutionProgress::Blocked
    );
}
