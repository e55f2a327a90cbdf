//! Journals at the boundary of a rule: what the rules still accept, and the first event that they
//! refuse.

use onward_base::Timestamp;
use onward_journal::rules::AWAITED_MAX;
use onward_journal::{
    AwaitKind, ErrorKind, Event, ExecutionError, JournalEvent, JournalState, Rule,
};

use super::script::*;

#[test]
fn a_signal_and_its_deadline_may_both_come_before_the_resume() {
    let wait = [started(), timer(0), awaiting_signal_until(1, "go", 0)];
    let signal = [delivered("go", 1, 0), received(1, "go", 1, 0)];
    let end = [resumed(), complete()];
    judge(&record(&[&wait[..], &signal, &[fired(0)], &end].concat())).unwrap();
    judge(&record(&[&wait[..], &[fired(0)], &signal, &end].concat())).unwrap();
    judge(&record(&[&wait[..], &signal, &end].concat())).unwrap();
    judge(&record(&[&wait[..], &[fired(0)], &end].concat())).unwrap();
}

#[test]
fn a_wait_that_timed_out_may_be_awaited_again() {
    let events = [
        started(),
        timer(0),
        awaiting_signal_until(1, "go", 0),
        fired(0),
        resumed(),
        awaiting_one(1),
        delivered("go", 1, 0),
        received(1, "go", 1, 0),
        resumed(),
    ];
    judge(&record(&events)).unwrap();
}

#[test]
fn the_same_error_of_another_kind_is_another_result() {
    let failed = |kind| Err(ExecutionError::new(kind, "late"));
    let done = Event::InvokeCompleted {
        promise_id: promise(1),
        result: failed(ErrorKind::Timeout),
        attempt: 1,
    };
    let journal = |kind| {
        let take = taken_result(0, 1, failed(kind));
        record(&[
            started(),
            created(0),
            scheduled(1),
            submitted(0, 1),
            attempted(1, 1),
            done.clone(),
            take,
        ])
    };
    judge(&journal(ErrorKind::Timeout)).unwrap();
    assert_eq!(judge(&journal(ErrorKind::Trap)).unwrap_err().rule, Rule::H3);
}

#[test]
fn an_await_names_at_most_65536_promises() {
    let mut events = vec![started()];
    events.extend((0..=AWAITED_MAX as u32).map(timer));
    let numbers: Vec<u32> = (0..=AWAITED_MAX as u32).collect();
    let mut fold = JournalState::new(own());
    record(&events)
        .iter()
        .for_each(|event| fold.push_event(event).unwrap());
    let wait = |numbers: &[u32]| {
        let event = awaiting(AwaitKind::Any, numbers);
        fold.check_event(&JournalEvent {
            sequence: fold.next_sequence(),
            timestamp: Timestamp::EPOCH,
            event,
        })
    };
    assert_eq!(wait(&numbers).unwrap_err().rule, Rule::H7);
    assert_eq!(wait(&numbers[1..]), Ok(()));
}

#[test]
fn awaited_ids_may_stand_in_any_order() {
    let kinds = [AwaitKind::Any, AwaitKind::All];
    for (kind, order) in kinds
        .into_iter()
        .flat_map(|kind| [[0, 1, 2], [2, 1, 0], [1, 2, 0]].map(|o| (kind.clone(), o)))
    {
        judge(&record(&[
            started(),
            timer(0),
            timer(1),
            timer(2),
            awaiting(kind, &order),
        ]))
        .unwrap();
    }
}

#[test]
fn timestamps_are_not_checked() {
    let mut events = record(&[
        started(),
        timer(0),
        awaiting_one(0),
        fired(0),
        resumed(),
        complete(),
    ]);
    for (event, at) in events.iter_mut().zip([9_u64, 3, 7, 1, 0, 2]) {
        event.timestamp = Timestamp::EPOCH.plus_ms(at);
    }
    judge(&events).unwrap();
}
