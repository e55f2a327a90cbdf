//! Commands after a cancel request: the interrupted await, cleanup, and its end.

use expect_test::expect;
use onward_base::SharedText;
use onward_journal::{AwaitKind, ExecutionPhase, ExecutionState, JournalCommand};

use super::command_fixture::{Dialogue, complete_with, finish, schedule, start, wait};

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
    dialogue.assert_transcript(&expect![[r#"
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
