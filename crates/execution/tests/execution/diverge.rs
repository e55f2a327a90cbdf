//! A guest that takes another path than the recorded one is found out at the first step, and nothing is recorded.

use onward_execution::{Execution, Guest, Host, Limits, Progress, Script, WaitFor};
use onward_journal::{ExecutionError, InvokeResult, Journal, Payload, Timestamp};

use crate::engine::{Virtual, json};

/// What was done the first time, up to a wait.
fn recorded() -> Execution {
    let mut execution = crate::engine::start();
    let mut world = world();
    let mut guest = Script::new(|host| async move {
        host.random(4).await?;
        let first = host.schedule("a", json("1")).await?;
        let set = host.join_set().await?;
        let second = host.schedule("b", json("2")).await?;
        host.submit(set, second).await?;
        host.wait(first).await
    });
    assert_eq!(execution.run(&mut guest, &mut world).unwrap(), Progress::Blocked);
    execution
}

fn world() -> Virtual {
    Virtual { now: Timestamp::EPOCH, logs: Vec::new() }
}

fn replayed(mut guest: Script) -> (Progress, Execution) {
    let recorded = recorded();
    let events = recorded.journal().events().to_vec();
    let mut again = Execution::recover(Journal::recover(recorded.id(), events).unwrap(), Limits::default());
    let before = again.journal().events().len();
    let progress = again.run(&mut guest, &mut world()).unwrap();
    assert_eq!(again.journal().events().len(), before, "nothing is recorded");
    (progress, again)
}

fn sequence(progress: &Progress) -> u64 {
    match progress {
        Progress::Diverged(divergence) => divergence.sequence,
        other => panic!("{other:?}"),
    }
}

async fn beginning(host: &Host) -> Result<u32, ExecutionError> {
    host.random(4).await?;
    host.schedule("a", json("1")).await
}

#[test]
fn the_same_path_is_taken_again() {
    let guest = Script::new(|host| async move {
        let first = beginning(&host).await?;
        let set = host.join_set().await?;
        let second = host.schedule("b", json("2")).await?;
        host.submit(set, second).await?;
        host.wait(first).await
    });
    assert_eq!(replayed(guest).0, Progress::Blocked);
}

#[test]
fn another_order_another_name_another_input_and_another_length_are_found() {
    let order = Script::new(|host| async move { host.invoke("a", json("1")).await });
    assert_eq!(sequence(&replayed(order).0), 1);
    let length = Script::new(|host| async move {
        host.random(5).await?;
        Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(length).0), 1);
    let name = Script::new(|host| async move {
        host.random(4).await?;
        host.invoke("b", json("1")).await
    });
    assert_eq!(sequence(&replayed(name).0), 2);
    let input = Script::new(|host| async move {
        host.random(4).await?;
        host.invoke("a", json("2")).await
    });
    let (progress, _) = replayed(input);
    assert_eq!(sequence(&progress), 2);
    let Progress::Diverged(divergence) = progress else { panic!() };
    assert_eq!(
        divergence.to_string(),
        "sequence 2 records InvokeScheduled(\"root.1\", \"a\", 1), the function asks for an invocation of a with 2"
    );
}

#[test]
fn another_wait_another_member_and_an_early_end_are_found() {
    async fn up_to_submit(host: &Host) -> Result<(u32, u32), ExecutionError> {
        let first = beginning(host).await?;
        let set = host.join_set().await?;
        host.schedule("b", json("2")).await?;
        Ok((first, set))
    }
    let member = Script::new(|host| async move {
        let (first, set) = up_to_submit(&host).await?;
        host.submit(set, first).await?;
        Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(member).0), 5);
    let wait = Script::new(|host| async move {
        let (first, set) = up_to_submit(&host).await?;
        host.submit(set, first + 2).await?;
        match host.ask(onward_execution::Request::Await { promises: vec![first], wait: WaitFor::All }).await {
            onward_execution::Answer::Outcome(outcome) => outcome,
            _ => Ok(Payload::null()),
        }
    });
    assert_eq!(sequence(&replayed(wait).0), 6);
    let end = Script::new(|host| async move {
        beginning(&host).await?;
        InvokeResult::Ok(Payload::null())
    });
    assert_eq!(sequence(&replayed(end).0), 3);
}

#[test]
fn a_guest_can_be_exchanged_for_a_new_one() {
    let mut execution = recorded();
    execution.rewind();
    let mut again = Script::new(|host| async move {
        let first = beginning(&host).await?;
        let set = host.join_set().await?;
        let second = host.schedule("b", json("2")).await?;
        host.submit(set, second).await?;
        host.wait(first).await
    });
    assert_eq!(execution.run(&mut again, &mut world()).unwrap(), Progress::Blocked);
    let guest: &mut dyn Guest = &mut again;
    assert_eq!(execution.run(guest, &mut world()).unwrap(), Progress::Blocked);
}
