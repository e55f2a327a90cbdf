//! Crashes before and after every commit and after every task: the end is the same.

use onward_base::Payload;
use onward_execution::{Guest, JoinSetNext, ScriptedGuest};
use onward_journal::{ErrorKind, Event, ExecutionError, JournalEvent};

use crate::engine::{Outcome, Plan, Point, json, plan, run, run_without_crash};
use crate::worked::{approval, full_example};

fn timers() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let slow = host.schedule_function("slow", json("1")).await?;
        let timer = host.schedule_timer(5_000).await?;
        let (first, _) = host.await_any(&[timer, slow]).await?;
        host.sleep(60_000).await?;
        let both = host.await_all(&[slow, timer]).await?;
        let time = host.now().await?;
        let random = host.random_bytes(4).await?;
        Ok(json(&format!(
            "[{first}, {}, \"{time}\", {random:?}]",
            both.len()
        )))
    }))
}

fn waits_with_deadlines() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let none = host.await_signal("never", Some(1_000)).await?;
        let some = host.await_signal("go", Some(1_000_000)).await?;
        let set = host.create_join_set().await?;
        let promise = host.schedule_function("flaky", json("1")).await?;
        host.submit_to_join_set(set, promise).await?;
        let mut timeouts = 0;
        let taken = loop {
            match host.next_result(set, Some(300)).await? {
                JoinSetNext::TimedOut => timeouts += 1,
                JoinSetNext::Result(_, result) => break result?,
                JoinSetNext::Empty => return Ok(json("\"empty\"")),
            }
        };
        let some = some.map_or_else(|| "null".to_owned(), |payload| payload.as_str().to_owned());
        Ok(json(&format!(
            "[{}, {some}, {timeouts}, {}]",
            none.is_none(),
            taken.as_str()
        )))
    }))
}

fn closes_join_set() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let set = host.create_join_set().await?;
        for _ in 0..3 {
            let promise = host.schedule_function("echo", json("1")).await?;
            host.submit_to_join_set(set, promise).await?;
        }
        let JoinSetNext::Result(first, _) = host.next_result(set, None).await? else {
            return Ok(json("null"));
        };
        host.close_join_set(set).await?;
        let mut rest = Vec::new();
        while let JoinSetNext::Result(_, result) = host.next_result(set, None).await? {
            rest.push(result.is_ok());
        }
        Ok(json(&format!("[{first}, {rest:?}]")))
    }))
}

fn plans() -> Vec<(&'static str, Plan)> {
    let flaky = |_: &Payload, attempt| match attempt {
        1 | 2 => Err(ExecutionError::new(ErrorKind::Timeout, "no answer")),
        _ => Ok(json("\"third\"")),
    };
    let ok = |_: &Payload, _| Ok(json("true"));
    let mut deadlines = plan(waits_with_deadlines, &[("flaky", flaky)]);
    deadlines.signals = vec![(3, "go", "\"now\"")];
    let mut approved = plan(approval, &[("create_order", ok)]);
    approved.signals = vec![(2, "user_approval", "1")];
    let mut buffered = plan(approval, &[("create_order", ok)]);
    buffered.signals = vec![(1, "user_approval", "1"), (1, "other", "2")];
    vec![
        (
            "full",
            plan(
                full_example,
                &[("fetch_user", ok), ("send_email", flaky), ("send_sms", ok)],
            ),
        ),
        ("timers", plan(timers, &[("slow", ok)])),
        ("deadlines", deadlines),
        ("approved", approved),
        ("buffered", buffered),
        (
            "closes",
            plan(closes_join_set, &[("echo", |input, _| Ok(input.clone()))]),
        ),
    ]
}

/// What was recorded of effects: results of invocations, in no particular order.
fn effects(events: &[JournalEvent]) -> Vec<String> {
    let mut effects: Vec<String> = events
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::InvokeCompleted {
                promise_id, result, ..
            } => Some(format!("{promise_id:?} {result:?}")),
            _ => None,
        })
        .collect();
    effects.sort_unstable();
    effects
}

fn check(name: &str, expected: &Outcome, crashed: &Outcome) {
    assert_eq!(crashed.result, expected.result, "{name}");
    assert_eq!(
        effects(&crashed.events),
        effects(&expected.events),
        "{name}"
    );
    let twice = effects(&crashed.events)
        .windows(2)
        .any(|pair| pair[0] == pair[1]);
    assert!(!twice, "{name}: an effect is recorded twice");
}

#[test]
fn one_crash_at_every_point() {
    for (name, plan) in plans() {
        let expected = run_without_crash(&plan);
        let mut point = 1;
        loop {
            let crashed = run(&plan, |_, at| at == point);
            if crashed.crashes == 0 {
                break;
            }
            check(
                &format!("{name}, crash at point {point}"),
                &expected,
                &crashed,
            );
            point += 1;
        }
        assert!(point > 5, "{name}: {point} points");
    }
}

#[test]
fn a_crash_at_every_third_point() {
    for (name, plan) in plans() {
        let expected = run_without_crash(&plan);
        for offset in 0..3 {
            let mut left = 40;
            let crashed = run(&plan, |_, at| {
                let crashes = at % 3 == offset && left > 0;
                left -= i32::from(crashes);
                crashes
            });
            check(name, &expected, &crashed);
        }
    }
}

#[test]
fn a_log_line_is_written_once_without_crashes_and_not_again_by_a_replay() {
    fn logging_guest() -> Box<dyn Guest> {
        Box::new(ScriptedGuest::new(|host| async move {
            for step in ["a", "b", "c"] {
                let message = step.into();
                host.send_request(onward_execution::GuestRequest::Log {
                    level: onward_execution::GuestLogLevel::Info,
                    message,
                })
                .await;
                host.invoke_function("echo", json("1")).await?;
            }
            Ok(json("1"))
        }))
    }
    let plan = plan(logging_guest, &[("echo", |input, _| Ok(input.clone()))]);
    assert_eq!(run_without_crash(&plan).logs, ["a", "b", "c"]);
    let mut left = 1;
    let crashed = run(&plan, |point, at| {
        let crashes = point == Point::AfterCommit && at > 6 && left > 0;
        left -= i32::from(crashes);
        crashes
    });
    assert_eq!(
        (crashed.crashes, &*crashed.logs),
        (1, &["a", "b", "c"].map(String::from)[..])
    );
}
