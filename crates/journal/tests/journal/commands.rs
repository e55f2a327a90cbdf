//! Commands as dialogues: what is asked, what is recorded, what is refused.

use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use onward_base::{SharedText, Timestamp};
use onward_journal::{
    AwaitKind, DeliveryGuarantee, ErrorKind, ExecutionError, ExecutionId, ExecutionPhase,
    ExecutionState, InvokeKind, InvokePerformer, InvokePhase, Journal, JournalCommand,
    PromiseState, RetryJitter, RetryPolicy,
};

use super::script::*;

/// A journal under test and its clock.
struct Dialogue {
    journal: Journal,
    now: Timestamp,
    said: String,
}

impl Dialogue {
    fn begin() -> Self {
        let mut journal = Journal::new(own());
        for event in record(&[started()]) {
            journal.append(event).unwrap();
        }
        Self {
            journal,
            now: Timestamp::EPOCH,
            said: String::new(),
        }
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Timestamp::EPOCH.plus_ms(ms);
        self
    }

    /// Notes what the command records, or which rule refuses it.
    fn ask(&mut self, command: JournalCommand) -> &mut Self {
        match self.journal.handle_command(command, self.now) {
            Ok(events) => {
                let state = self.journal.execution_state().unwrap();
                let told: Vec<String> = events
                    .iter()
                    .map(|event| event.event.describe(own()).to_string())
                    .collect();
                self.said += &format!("{} → {state}\n", told.join(", "));
            }
            Err(violation) => self.said += &format!("{}: {}\n", violation.rule, violation.message),
        }
        self
    }

    fn says(&self, expected: &Expect) {
        expected.assert_eq(&self.said);
    }
}

fn schedule(policy: Option<RetryPolicy>) -> JournalCommand {
    let (kind, function_name) = (InvokeKind::Function, name("task"));
    let (retry_policy, delivery) = (policy.map(Box::new), DeliveryGuarantee::AtLeastOnce);
    JournalCommand::ScheduleInvoke {
        kind,
        function_name,
        input: payload(0),
        retry_policy,
        delivery,
    }
}

fn start(number: u32) -> JournalCommand {
    JournalCommand::StartAttempt {
        promise: promise(number),
        performer: InvokePerformer::Owner,
    }
}

fn finish(number: u32, value: u32) -> JournalCommand {
    JournalCommand::CompleteAttempt {
        promise: promise(number),
        result: payload(value),
    }
}

fn fail_attempt(number: u32, kind: ErrorKind) -> JournalCommand {
    JournalCommand::FailAttempt {
        promise: promise(number),
        error: ExecutionError::new(kind, "no"),
        entropy: 0,
    }
}

fn give_up(number: u32) -> JournalCommand {
    JournalCommand::GiveUpInvoke {
        promise: promise(number),
        error: error("in doubt").into_permanent(),
    }
}

/// The next result of set 0, waited for until the timer of that number fires.
fn next(timeout: Option<u32>) -> JournalCommand {
    JournalCommand::TakeNextResult {
        set: set(0),
        timeout: timeout.map(promise),
    }
}

fn complete_with(continued_as: Option<ExecutionId>) -> JournalCommand {
    JournalCommand::Complete {
        result: payload(0),
        continued_as,
    }
}

fn wait(kind: AwaitKind, numbers: &[u32]) -> JournalCommand {
    JournalCommand::Await {
        waiting_on: numbers.iter().map(|number| promise(*number)).collect(),
        kind,
    }
}

#[test]
fn attempts_are_numbered_and_retried_as_the_policy_says() {
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
    dialogue.says(&expect![[r#"
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
    dialogue.says(&expect![[r#"
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
    dialogue.says(&expect![[r#"
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
fn signals_are_consumed_at_once_or_waited_for() {
    let go = || name("go");
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(JournalCommand::DeliverSignal {
            signal_name: go(),
            payload: payload(1),
        })
        .ask(JournalCommand::DeliverSignal {
            signal_name: go(),
            payload: payload(2),
        })
        .ask(JournalCommand::AwaitSignal {
            signal_name: go(),
            timeout: None,
        })
        .ask(JournalCommand::AwaitSignal {
            signal_name: go(),
            timeout: None,
        })
        .ask(JournalCommand::AwaitSignal {
            signal_name: go(),
            timeout: None,
        })
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(2),
        })
        .ask(JournalCommand::Resume)
        .ask(JournalCommand::DeliverSignal {
            signal_name: go(),
            payload: payload(3),
        })
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(2),
        })
        .ask(JournalCommand::Resume)
        .ask(complete_with(None));
    dialogue.says(&expect![[r#"
        SignalDelivered("go", 1, delivery_id=1) → Running
        SignalDelivered("go", 2, delivery_id=2) → Running
        SignalReceived("root.0", "go", 1, delivery_id=1) → Running
        SignalReceived("root.1", "go", 2, delivery_id=2) → Running
        ExecutionAwaiting(["root.2"], Signal("go")) → Blocked
        CF-2: no signal "go" is buffered
        G-4: still waiting on root.2
        SignalDelivered("go", 3, delivery_id=3) → Blocked
        SignalReceived("root.2", "go", 3, delivery_id=3) → Blocked
        ExecutionResumed → Running
        ExecutionCompleted(0) → Completed
    "#]]);
}

#[test]
fn a_join_set_gives_results_in_the_order_of_completion() {
    let submit = |number| JournalCommand::SubmitToJoinSet {
        set: set(0),
        promise: promise(number),
    };
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(JournalCommand::CreateJoinSet)
        .ask(schedule(None))
        .ask(schedule(None))
        .ask(schedule(None));
    dialogue
        .ask(start(2))
        .ask(finish(2, 22))
        .ask(submit(1))
        .ask(submit(2))
        .ask(submit(3));
    dialogue.said.clear();
    dialogue
        .ask(next(None))
        .ask(next(None))
        .ask(start(3))
        .ask(fail_attempt(3, "odd".parse().unwrap()))
        .at(1_000)
        .ask(start(3))
        .ask(finish(3, 33))
        .ask(start(1))
        .ask(finish(1, 11))
        .ask(JournalCommand::Resume)
        .ask(next(None))
        .ask(next(None))
        .ask(next(None));
    dialogue.says(&expect![[r#"
        JoinSetAwaited("root.0", "root.2", Ok(22)) → Running
        ExecutionAwaiting(["root.1","root.3"], Any) → Blocked
        InvokeStarted("root.3", attempt=1) → Blocked
        InvokeRetrying("root.3", attempt=1, odd: no, 1970-01-01T00:00:01Z) → Blocked
        InvokeStarted("root.3", attempt=2) → Blocked
        InvokeCompleted("root.3", Ok(33), attempt=2) → Blocked
        InvokeStarted("root.1", attempt=1) → Blocked
        InvokeCompleted("root.1", Ok(11), attempt=1) → Blocked
        ExecutionResumed → Running
        JoinSetAwaited("root.0", "root.3", Ok(33)) → Running
        JoinSetAwaited("root.0", "root.1", Ok(11)) → Running
        JS-6: all 3 results of join set root.0 were taken
    "#]]);
}

#[test]
fn a_join_set_waits_for_what_is_left() {
    let mut dialogue = Dialogue::begin();
    dialogue.ask(JournalCommand::CreateJoinSet);
    for number in 1..=4 {
        dialogue
            .ask(schedule(None))
            .ask(JournalCommand::SubmitToJoinSet {
                set: set(0),
                promise: promise(number),
            });
    }
    dialogue
        .ask(start(3))
        .ask(finish(3, 33))
        .ask(start(2))
        .ask(finish(2, 22))
        .ask(start(1))
        .ask(finish(1, 11));
    dialogue.said.clear();
    for _ in 0..4 {
        dialogue.ask(next(None));
    }
    dialogue.says(&expect![[r#"
        JoinSetAwaited("root.0", "root.3", Ok(33)) → Running
        JoinSetAwaited("root.0", "root.2", Ok(22)) → Running
        JoinSetAwaited("root.0", "root.1", Ok(11)) → Running
        ExecutionAwaiting(["root.4"], Any) → Blocked
    "#]]);
}

#[test]
fn a_satisfied_await_is_recorded_with_its_resume() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(None))
        .ask(start(0))
        .ask(finish(0, 1))
        .ask(schedule(None))
        .ask(JournalCommand::ReadClock);
    dialogue.said.clear();
    dialogue
        .ask(wait(AwaitKind::Single, &[0]))
        .ask(wait(AwaitKind::Any, &[0, 1]))
        .ask(wait(AwaitKind::Single, &[2]))
        .ask(wait(AwaitKind::All, &[0, 1]))
        .ask(wait(AwaitKind::Single, &[0]));
    dialogue.says(&expect![[r#"
        ExecutionAwaiting(["root.0"], Single), ExecutionResumed → Running
        ExecutionAwaiting(["root.0","root.1"], Any), ExecutionResumed → Running
        H-9: root.2 is neither an invoke nor a timer nor a signal
        ExecutionAwaiting(["root.0","root.1"], All) → Blocked
        G-2: the execution is Blocked with an open await
    "#]]);
    let waiting: Vec<_> = dialogue.journal.journal_state().waiting_on().collect();
    assert_eq!(waiting, [promise(0), promise(1)]);
    assert!(
        !dialogue
            .journal
            .journal_state()
            .open_await()
            .unwrap()
            .is_satisfied()
    );
}

#[test]
fn an_await_is_held_to_the_rules_whether_it_is_satisfied_or_not() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(None))
        .ask(start(0))
        .ask(finish(0, 1))
        .ask(JournalCommand::ReadClock);
    dialogue.said.clear();
    let foreign = onward_journal::ExecutionId::default().child_promise(0);
    dialogue
        .ask(wait(AwaitKind::All, &[0, 0]))
        .ask(wait(AwaitKind::Single, &[0, 0]))
        .ask(wait(AwaitKind::Any, &[0, 7]))
        .ask(wait(AwaitKind::Any, &[0, 1]))
        .ask(JournalCommand::Await {
            waiting_on: vec![promise(0), foreign],
            kind: AwaitKind::Any,
        })
        .ask(complete_with(None))
        .ask(wait(AwaitKind::Single, &[0]))
        .ask(next(None))
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(0),
        });
    dialogue.says(&expect![[r#"
        H-7: the await names a promise twice
        H-7: a single await names 2 promises
        H-8: root.7 was never allocated
        H-9: root.1 is neither an invoke nor a timer nor a signal
        ID-1: 0000000000000000000000000000000000000000000000000000000000000000.0 is not an operation of this execution
        ExecutionCompleted(0) → Completed
        S-4: the execution is Completed
        S-4: the execution is Completed
        S-4: the execution is Completed
    "#]]);
}

#[test]
fn cancel_interrupts_an_await_and_cleanup_runs() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(JournalCommand::ScheduleTimer { duration_ms: 1_000 })
        .ask(wait(AwaitKind::Single, &[0]))
        .ask(JournalCommand::RequestCancel {
            reason: SharedText::from("enough"),
        })
        .ask(JournalCommand::RequestCancel {
            reason: SharedText::from("really"),
        })
        .ask(JournalCommand::Resume)
        .ask(schedule(None))
        .ask(wait(AwaitKind::Single, &[1]))
        .ask(complete_with(None))
        .ask(start(1))
        .ask(finish(1, 0))
        .ask(JournalCommand::Resume)
        .ask(JournalCommand::Cancel {
            reason: SharedText::from("enough"),
        })
        .ask(JournalCommand::ReadClock);
    dialogue.says(&expect![[r#"
        TimerScheduled("root.0", 1000ms, 1970-01-01T00:00:01Z) → Running
        ExecutionAwaiting(["root.0"], Single) → Blocked
        CancelRequested("enough") → Cancelling
        G-5: the execution is Cancelling
        G-4: the execution is Cancelling
        InvokeScheduled("root.1", "task", 0) → Cancelling
        ExecutionAwaiting(["root.1"], Single) → Cancelling
        G-3: the execution is Cancelling with an open await
        InvokeStarted("root.1", attempt=1) → Cancelling
        InvokeCompleted("root.1", Ok(0), attempt=1) → Cancelling
        ExecutionResumed → Cancelling
        ExecutionCancelled("enough") → Cancelled
        S-4: the execution is Cancelled
    "#]]);
}

#[test]
fn cleanup_that_never_returns_can_be_ended() {
    let mut dialogue = Dialogue::begin();
    dialogue.ask(JournalCommand::RequestCancel {
        reason: SharedText::from("enough"),
    });
    dialogue
        .ask(JournalCommand::ScheduleTimer {
            duration_ms: u64::MAX,
        })
        .ask(wait(AwaitKind::Single, &[0]));
    assert_eq!(
        dialogue.journal.journal_state().phase(),
        ExecutionPhase::CleanupBlocked
    );
    dialogue.ask(JournalCommand::Cancel {
        reason: SharedText::from("out of patience"),
    });
    assert_eq!(
        dialogue.journal.execution_state(),
        Some(ExecutionState::Cancelled)
    );
    assert!(dialogue.journal.journal_state().open_await().is_none());
}

#[test]
fn the_fold_tells_what_is_pending() {
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
    dialogue.says(&expect![[r#"
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
    dialogue.says(&expect![[r#"
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
    dialogue.said.clear();
    dialogue
        .ask(next(None))
        .ask(give_up(1))
        .ask(JournalCommand::Resume)
        .ask(next(None));
    dialogue.says(&expect![[r#"
        ExecutionAwaiting(["root.1"], Any) → Blocked
        InvokeCompleted("root.1", Err(user_error: in doubt, permanent), attempt=1) → Blocked
        ExecutionResumed → Running
        JoinSetAwaited("root.0", "root.1", Err(user_error: in doubt, permanent)) → Running
    "#]]);
}

#[test]
fn a_wait_for_a_signal_ends_at_its_deadline() {
    let until = |timer| JournalCommand::AwaitSignal {
        signal_name: name("go"),
        timeout: Some(promise(timer)),
    };
    let deliver = |value| JournalCommand::DeliverSignal {
        signal_name: name("go"),
        payload: payload(value),
    };
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(until(0))
        .ask(JournalCommand::ScheduleTimer { duration_ms: 5 })
        .ask(until(0))
        .ask(JournalCommand::Resume)
        .at(5)
        .ask(JournalCommand::FireTimer {
            promise: promise(0),
        })
        .ask(JournalCommand::Resume)
        .ask(deliver(1))
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(1),
        })
        .ask(until(0))
        .ask(until(0))
        .ask(JournalCommand::ScheduleTimer { duration_ms: 5 })
        .ask(until(3))
        .ask(deliver(2))
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(3),
        })
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(4),
        })
        .ask(JournalCommand::Resume)
        .ask(wait(AwaitKind::Single, &[1]))
        .ask(deliver(3))
        .ask(JournalCommand::ReceiveSignal {
            promise: promise(1),
        })
        .ask(JournalCommand::Resume);
    dialogue.says(&expect![[r#"
        CF-4: root.0 cannot be the signal and its deadline
        TimerScheduled("root.0", 5ms, 1970-01-01T00:00:00.005Z) → Running
        ExecutionAwaiting(["root.1","root.0"], Signal("go")) → Blocked
        G-4: still waiting on root.1, root.0
        TimerFired("root.0") → Blocked
        ExecutionResumed → Running
        SignalDelivered("go", 1, delivery_id=1) → Running
        ID-2: root.1 where root.2 was expected
        SignalReceived("root.2", "go", 1, delivery_id=1) → Running
        CF-4: the deadline root.0 fired already
        TimerScheduled("root.3", 5ms, 1970-01-01T00:00:00.01Z) → Running
        ExecutionAwaiting(["root.4","root.3"], Signal("go")) → Blocked
        SignalDelivered("go", 2, delivery_id=2) → Blocked
        CF-4: root.3 does not wait for a signal
        SignalReceived("root.4", "go", 2, delivery_id=2) → Blocked
        ExecutionResumed → Running
        ExecutionAwaiting(["root.1"], Single) → Blocked
        SignalDelivered("go", 3, delivery_id=3) → Blocked
        SignalReceived("root.1", "go", 3, delivery_id=3) → Blocked
        ExecutionResumed → Running
    "#]]);
}

#[test]
fn the_next_result_of_a_set_is_waited_for_until_a_deadline() {
    let fire = |number| JournalCommand::FireTimer {
        promise: promise(number),
    };
    let sleep = || JournalCommand::ScheduleTimer { duration_ms: 0 };
    let mut dialogue = Dialogue::begin();
    dialogue.ask(JournalCommand::CreateJoinSet);
    for number in 1..=2 {
        dialogue
            .ask(schedule(None))
            .ask(start(number))
            .ask(JournalCommand::SubmitToJoinSet {
                set: set(0),
                promise: promise(number),
            });
    }
    dialogue.said.clear();
    dialogue
        .ask(next(Some(7)))
        .ask(sleep())
        .ask(next(Some(3)))
        .ask(fire(3))
        .ask(JournalCommand::Resume)
        .ask(next(Some(3)))
        .ask(finish(1, 11))
        .ask(next(Some(3)))
        .ask(sleep())
        .ask(next(Some(4)))
        .ask(finish(2, 22))
        .ask(JournalCommand::Resume)
        .ask(next(Some(4)))
        .ask(next(Some(4)));
    dialogue.says(&expect![[r#"
        H-8: root.7 was never allocated
        TimerScheduled("root.3", 0ms, 1970-01-01T00:00:00Z) → Running
        ExecutionAwaiting(["root.1","root.2","root.3"], Any) → Blocked
        TimerFired("root.3") → Blocked
        ExecutionResumed → Running
        ExecutionAwaiting(["root.1","root.2","root.3"], Any), ExecutionResumed → Running
        InvokeCompleted("root.1", Ok(11), attempt=1) → Running
        JoinSetAwaited("root.0", "root.1", Ok(11)) → Running
        TimerScheduled("root.4", 0ms, 1970-01-01T00:00:00Z) → Running
        ExecutionAwaiting(["root.2","root.4"], Any) → Blocked
        InvokeCompleted("root.2", Ok(22), attempt=1) → Blocked
        ExecutionResumed → Running
        JoinSetAwaited("root.0", "root.2", Ok(22)) → Running
        JS-6: all 2 results of join set root.0 were taken
    "#]]);
}

#[test]
fn an_execution_may_end_in_another() {
    let mut dialogue = Dialogue::begin();
    dialogue.ask(complete_with(Some(ExecutionId::from_bytes([0xab; 32]))));
    dialogue.says(&expect![[r#"
        ExecutionCompleted(0, continued_as=abababababab…) → Completed
    "#]]);
}

#[test]
fn the_fold_remembers_the_delivery() {
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
    dialogue.says(&expect![[r#"
        InvokeScheduled("root.0", "task", 0, at_most_once) → Running
        InvokeScheduled("root.1", "task", 0) → Running
        InvokeStarted("root.0", attempt=1) → Running
        InvokeCompleted("root.0", Ok(1), attempt=1) → Running
    "#]]);
}
