//! Commands that wait for promises and signals: events recorded, deadlines, and refusals.

use expect_test::expect;
use onward_journal::{AwaitKind, JournalCommand};

use super::command_fixture::{Dialogue, complete_with, finish, next, schedule, start, wait};
use super::script::*;

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
    dialogue.assert_transcript(&expect![[r#"
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
fn a_satisfied_await_is_recorded_with_its_resume() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(None))
        .ask(start(0))
        .ask(finish(0, 1))
        .ask(schedule(None))
        .ask(JournalCommand::ReadClock);
    dialogue.transcript.clear();
    dialogue
        .ask(wait(AwaitKind::Single, &[0]))
        .ask(wait(AwaitKind::Any, &[0, 1]))
        .ask(wait(AwaitKind::Single, &[2]))
        .ask(wait(AwaitKind::All, &[0, 1]))
        .ask(wait(AwaitKind::Single, &[0]));
    dialogue.assert_transcript(&expect![[r#"
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
fn an_await_is_checked_whether_it_is_satisfied_or_not() {
    let mut dialogue = Dialogue::begin();
    dialogue
        .ask(schedule(None))
        .ask(start(0))
        .ask(finish(0, 1))
        .ask(JournalCommand::ReadClock);
    dialogue.transcript.clear();
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
    dialogue.assert_transcript(&expect![[r#"
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
    dialogue.assert_transcript(&expect![[r#"
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
