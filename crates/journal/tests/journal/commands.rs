//! Commands as dialogues: attempts, timers and the end of an execution, with the events that each
//! command records or the rule that refuses it.

use std::num::NonZeroU32;

use expect_test::expect;
use onward_base::{Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, ErrorKind, ExecutionId, InvokePhase, Journal,
    JournalCommand, PromiseState, RetryJitter, RetryPolicy,
};

use super::command_fixture::{
    Dialogue, complete_with, fail_attempt, finish, give_up, next, schedule, start, wait,
};
use super::script::*;

/// Processes whose clocks differ record events of the same journal.
#[test]
fn timestamps_never_go_backwards() {
    let mut journal = Journal::new(ExecutionId::default());
    let at = |ms| Timestamp::EPOCH.plus_ms(ms);
    let begin = JournalCommand::Start {
        component_digest: ComponentDigest::from_bytes([1; 32]),
        input: Payload::null(),
        parent: None,
        key: None,
    };
    journal.handle_command(begin, at(1_000)).unwrap();
    for now in [999, 1_001, 5] {
        let signal = JournalCommand::DeliverSignal {
            signal_name: "on".parse().unwrap(),
            payload: Payload::null(),
        };
        journal.handle_command(signal, at(now)).unwrap();
    }
    let times: Vec<Timestamp> = journal.events().iter().map(|it| it.timestamp).collect();
    assert_eq!(times, [1_000, 1_000, 1_001, 1_001].map(at));
}

#[test]
fn attempts_are_numbered_and_retried_by_the_policy() {
    let policy = RetryPolicy {
        max_attempts: NonZeroU32::new(2),
        non_retryable: vec![ErrorKind::Trap],
        jitter: RetryJitter::NONE,
        ..RetryPolicy::default()
    };
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(Some(policy.clone())))
        .ask(start(0))
        .ask(fail_attempt(0, ErrorKind::Timeout))
        .at(999)
        .ask(start(0))
        .at(1_000)
        .ask(start(0))
        .ask(fail_attempt(0, ErrorKind::Timeout))
        .ask(start(0))
        .ask(schedule(Some(policy)))
        .ask(start(1))
        .ask(fail_attempt(1, ErrorKind::Trap))
        .ask(schedule(None))
        .ask(start(2))
        .ask(fail_attempt(2, ErrorKind::Trap));
    dialogue.assert_transcript(&expect![[r#"
        InvokeScheduled("root.0", "task", 0) → Running
        InvokeStarted("root.0", attempt=1) → Running
        InvokeRetrying("root.0", attempt=1, timeout: no, 1970-01-01T00:00:01Z) → Running
        T-2: root.0 may be retried at 1970-01-01T00:00:01Z, it is 1970-01-01T00:00:00.999Z
        InvokeStarted("root.0", attempt=2) → Running
        InvokeCompleted("root.0", Err(timeout: no), attempt=2) → Running
        SE-4: root.0 completed at sequence 5 already
        InvokeScheduled("root.1", "task", 0) → Running
        InvokeStarted("root.1", attempt=1) → Running
        InvokeCompleted("root.1", Err(trap: no), attempt=1) → Running
        InvokeScheduled("root.2", "task", 0) → Running
        InvokeStarted("root.2", attempt=1) → Running
        InvokeRetrying("root.2", attempt=1, trap: no, 1970-01-01T00:00:02Z) → Running
    "#]]);
}

#[test]
fn commands_for_unknown_promises_are_refused_by_the_rules() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(start(0))
        .ask(finish(0, 1))
        .ask(fail_attempt(0, ErrorKind::Trap))
        .ask(JournalCommand::FireTimer {
            promise: promise(0),
        })
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(0),
        })
        .ask(wait(AwaitKind::Any, &[0]))
        .ask(wait(AwaitKind::All, &[]))
        .ask(JournalCommand::SubmitToJoinSet {
            set: set(0),
            promise: promise(0),
        })
        .ask(next(None))
        .ask(JournalCommand::Cancel {
            reason: SharedText::from("why not"),
        });
    dialogue.assert_transcript(&expect![[r#"
        SE-1: root.0 was never scheduled
        SE-2: root.0 was never started
        SE-3: attempt 0 of root.0 was never started
        CF-1: no timer root.0 was scheduled
        CF-4: root.0 does not wait for a signal
        H-8: root.0 was never allocated
        H-7: the await names no promise
        JS-1: join set root.0 was never created
        JS-3: join set root.0 was never created
        S-5: the execution is Running
    "#]]);
    assert_eq!(dialogue.journal.journal_state().next_sequence(), 1);
}

#[test]
fn timers_fire_on_time_and_once() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .at(10)
        .ask(JournalCommand::ScheduleTimer { duration_ms: 5 })
        .ask(wait(AwaitKind::Single, &[0]))
        .at(14)
        .ask(JournalCommand::FireTimer {
            promise: promise(0),
        })
        .at(15)
        .ask(JournalCommand::FireTimer {
            promise: promise(0),
        })
        .ask(JournalCommand::FireTimer {
            promise: promise(0),
        })
        .ask(JournalCommand::Resume)
        .ask(wait(AwaitKind::Single, &[0]))
        .ask(JournalCommand::ScheduleTimer {
            duration_ms: u64::MAX,
        });
    dialogue.assert_transcript(&expect![[r#"
        TimerScheduled("root.0", 5ms, 1970-01-01T00:00:00.015Z) → Running
        ExecutionAwaiting(["root.0"], Single) → Blocked
        T-1: root.0 fires at 1970-01-01T00:00:00.015Z, it is 1970-01-01T00:00:00.014Z
        TimerFired("root.0") → Blocked
        H-1: timer root.0 fired already
        ExecutionResumed → Running
        ExecutionAwaiting(["root.0"], Single), ExecutionResumed → Running
        TimerScheduled("root.1", 18446744073709551615ms, 9999-12-31T23:59:59.999999Z) → Running
    "#]]);
}

#[test]
fn the_journal_state_lists_pending_operations() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(None))
        .ask(JournalCommand::ScheduleTimer { duration_ms: 7 })
        .ask(JournalCommand::ReadClock);
    dialogue
        .ask(start(0))
        .ask(fail_attempt(0, ErrorKind::Timeout));
    let fold = dialogue.journal.journal_state();
    let pending: Vec<_> = fold
        .promise_states()
        .filter(|(_, promise)| !promise.is_complete())
        .collect();
    assert_eq!(pending.len(), 2);
    assert!(
        matches!(fold.invoke_state(&promise(0)).unwrap().phase, InvokePhase::Retrying { retry_at } if retry_at > dialogue.now)
    );
    assert!(matches!(
        fold.promise_state(&promise(1)),
        Some(PromiseState::Timer { fired: false, .. })
    ));
    assert_eq!(fold.next_promise_id(), promise(3));
    assert_eq!(fold.signal_inbox("go").delivered, 0);
}

#[test]
fn a_permanent_failure_is_the_result_at_once() {
    let fail = JournalCommand::FailAttempt {
        promise: promise(0),
        error: error("no such card").into_permanent(),
        entropy: 0,
    };
    let mut dialogue = Dialogue::begin();
    dialogue.ask(schedule(None)).ask(start(0)).ask(fail);
    dialogue.assert_transcript(&expect![[r#"
        InvokeScheduled("root.0", "task", 0) → Running
        InvokeStarted("root.0", attempt=1) → Running
        InvokeCompleted("root.0", Err(user_error: no such card, permanent), attempt=1) → Running
    "#]]);
}

#[test]
fn an_invocation_may_be_given_up_in_flight_and_between_attempts() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(give_up(0))
        .ask(schedule(None))
        .ask(give_up(0))
        .ask(start(0))
        .ask(fail_attempt(0, ErrorKind::Timeout))
        .ask(give_up(0))
        .ask(give_up(0))
        .ask(schedule(None))
        .ask(start(1))
        .ask(give_up(1))
        .at(60_000)
        .ask(start(0))
        .ask(start(1));
    dialogue.assert_transcript(&expect![[r#"
        SE-2: root.0 was never started
        InvokeScheduled("root.0", "task", 0) → Running
        SE-2: root.0 was never started
        InvokeStarted("root.0", attempt=1) → Running
        InvokeRetrying("root.0", attempt=1, timeout: no, 1970-01-01T00:00:01Z) → Running
        InvokeCompleted("root.0", Err(user_error: in doubt, permanent), attempt=1) → Running
        SE-4: root.0 completed at sequence 4 already
        InvokeScheduled("root.1", "task", 0) → Running
        InvokeStarted("root.1", attempt=1) → Running
        InvokeCompleted("root.1", Err(user_error: in doubt, permanent), attempt=1) → Running
        SE-4: root.0 completed at sequence 4 already
        SE-4: root.1 completed at sequence 7 already
    "#]]);
}

#[test]
fn an_invocation_that_is_given_up_satisfies_its_await() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(JournalCommand::CreateJoinSet)
        .ask(schedule(None))
        .ask(JournalCommand::SubmitToJoinSet {
            set: set(0),
            promise: promise(1),
        });
    dialogue
        .ask(start(1))
        .ask(fail_attempt(1, ErrorKind::Timeout));
    dialogue.transcript.clear();
    dialogue
        .ask(next(None))
        .ask(give_up(1))
        .ask(JournalCommand::Resume)
        .ask(next(None));
    dialogue.assert_transcript(&expect![[r#"
        ExecutionAwaiting(["root.1"], Any) → Blocked
        InvokeCompleted("root.1", Err(user_error: in doubt, permanent), attempt=1) → Blocked
        ExecutionResumed → Running
        JoinSetAwaited("root.0", "root.1", Err(user_error: in doubt, permanent)) → Running
    "#]]);
}

#[test]
fn an_execution_may_continue_as_another() {
    let mut dialogue = Dialogue::begin();
    dialogue.ask(complete_with(Some(ExecutionId::from_bytes([0xab; 32]))));
    dialogue.assert_transcript(&expect![[r#"
        ExecutionCompleted(0, continued_as=abababababab…) → Completed
    "#]]);
}

#[test]
fn the_journal_state_keeps_the_delivery_guarantee() {
    let mut dialogue = Dialogue::begin();
    let once = match schedule(None) {
        JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input,
            retry_policy,
            ..
        } => JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input,
            retry_policy,
            delivery: DeliveryGuarantee::AtMostOnce,
        },
        other => other,
    };
    dialogue
        .ask(once)
        .ask(schedule(None))
        .ask(start(0))
        .ask(finish(0, 1));
    let delivery = |number| {
        dialogue
            .journal
            .journal_state()
            .invoke_state(&promise(number))
            .unwrap()
            .delivery
    };
    assert_eq!(
        [delivery(0), delivery(1)],
        [
            DeliveryGuarantee::AtMostOnce,
            DeliveryGuarantee::AtLeastOnce
        ]
    );
    dialogue.assert_transcript(&expect![[r#"
        InvokeScheduled("root.0", "task", 0, at_most_once) → Running
        InvokeScheduled("root.1", "task", 0) → Running
        InvokeStarted("root.0", attempt=1) → Running
        InvokeCompleted("root.0", Ok(1), attempt=1) → Running
    "#]]);
}
