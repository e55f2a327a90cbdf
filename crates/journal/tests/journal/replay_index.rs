//! The replay index: which outcomes an await sees, by the time of its resume.

use onward_journal::{AwaitEnd, AwaitKind, Event, ExecutionError, RecordedOutcome, ReplayIndex};

use super::script::*;

#[test]
fn a_timer_that_fires_after_it_was_interrupted_is_not_seen() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_one(0),
        cancel_requested(),
        scheduled(1),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let awaited = replay.recorded_await(0).unwrap();
    assert_eq!(awaited.end, AwaitEnd::Interrupted(3));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 3),
            replay.recorded_outcome(&promise(0))
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(replay.recorded_await(1), None);
}

#[test]
fn an_await_sees_what_was_complete_when_it_resumed() {
    let any = awaiting(AwaitKind::Any, &[0, 1]);
    let events = record(&[
        started(),
        timer(0),
        timer(1),
        any,
        fired(1),
        resumed(),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    assert_eq!(replay.recorded_await(0).unwrap().end, AwaitEnd::Resumed(5));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 5),
            replay.outcome_before(&promise(1), 5)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 7)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!((replay.len(), replay.is_empty()), (2, false));
    assert!(ReplayIndex::new(own(), &events[..1]).is_empty());
    assert_eq!(replay.recorded_outcome(&promise(2)), None);
}

#[test]
fn a_failed_invoke_is_an_outcome() {
    let failed = Event::InvokeCompleted {
        promise_id: promise(0),
        result: Err(error("no")),
        attempt: 1,
    };
    let events = record(&[started(), scheduled(0), attempted(0, 1), failed]);
    let replay = ReplayIndex::new(own(), &events);
    let expected: Result<_, ExecutionError> = Err(error("no"));
    assert_eq!(
        replay.recorded_outcome(&promise(0)),
        Some(RecordedOutcome::Invoke(&expected))
    );
}

#[test]
fn a_signal_that_came_after_its_deadline_is_not_seen_at_that_resume() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_signal_until(1, "go", 0),
        fired(0),
        resumed(),
        awaiting_one(1),
        delivered("go", 1, 7),
        received(1, "go", 1, 7),
        resumed(),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let (first, second) = (
        replay.recorded_await(0).unwrap(),
        replay.recorded_await(1).unwrap(),
    );
    assert_eq!(
        (first.waiting_on, first.end),
        (&[promise(1), promise(0)][..], AwaitEnd::Resumed(4))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 4)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(second.end, AwaitEnd::Resumed(8));
    assert_eq!(
        replay.outcome_before(&promise(1), 8),
        Some(RecordedOutcome::Signal(&payload(7)))
    );
    assert_eq!(
        (replay.len(), replay.await_count(), replay.recorded_await(2)),
        (2, 2, None)
    );
    assert_eq!(
        ReplayIndex::new(own(), &events[..5]).recorded_outcome(&promise(1)),
        None
    );
    assert_eq!(ReplayIndex::new(own(), &events[..2]).await_count(), 0);
}
