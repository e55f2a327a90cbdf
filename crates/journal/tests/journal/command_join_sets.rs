//! Commands on join sets: the order of results, remaining members, and deadlines.

use expect_test::expect;
use onward_journal::JournalCommand;

use super::command_fixture::{Dialogue, fail_attempt, finish, next, schedule, start};
use super::script::*;

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
    dialogue.transcript.clear();
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
    dialogue.assert_transcript(&expect![[r#"
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
    dialogue.transcript.clear();
    for _ in 0..4 {
        dialogue.ask(next(None));
    }
    dialogue.assert_transcript(&expect![[r#"
        JoinSetAwaited("root.0", "root.3", Ok(33)) → Running
        JoinSetAwaited("root.0", "root.2", Ok(22)) → Running
        JoinSetAwaited("root.0", "root.1", Ok(11)) → Running
        ExecutionAwaiting(["root.4"], Any) → Blocked
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
    dialogue.transcript.clear();
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
    dialogue.assert_transcript(&expect![[r#"
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
