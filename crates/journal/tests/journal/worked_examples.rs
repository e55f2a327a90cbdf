//! The worked examples of the specification, from the files that users see: each event is accepted,
//! with the state that the specification shows beside it.

use onward_journal::jsonl::JournalLineReader;
use onward_journal::{ExecutionState, Journal, JournalEvent};

use super::oracle;
use super::script::{judge, own};

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../../examples/journals/", $name, ".jsonl"))
    };
}

fn read(text: &str) -> Vec<JournalEvent> {
    let mut reader = JournalLineReader::for_execution(own());
    text.lines()
        .map(|line| reader.read_line(line).unwrap())
        .collect()
}

/// The states, one letter each: Running, Blocked, cancelliNg, Completed, Failed, X for cancelled.
fn states(text: &str) -> String {
    let events = read(text);
    for index in 0..events.len() {
        assert_eq!(oracle::broken(&events[..index], &events[index]), []);
    }
    let letter = |state: ExecutionState| match state {
        ExecutionState::Running => 'R',
        ExecutionState::Blocked => 'B',
        ExecutionState::Cancelling => 'N',
        ExecutionState::Completed => 'C',
        ExecutionState::Failed => 'F',
        ExecutionState::Cancelled => 'X',
    };
    judge(&events).unwrap().into_iter().map(letter).collect()
}

#[test]
fn the_full_example_has_the_states_of_the_specification() {
    assert_eq!(states(example!("order")), "RRRBBBRRRRRRBBBRRBBBBBRRC");
}

#[test]
fn a_buffered_signal_does_not_block() {
    assert_eq!(states(example!("signal-buffered")), "RRBBBRRRC");
}

#[test]
fn a_signal_that_comes_later_blocks() {
    assert_eq!(states(example!("signal-blocking")), "RRBBBRBBBRC");
}

#[test]
fn a_wait_for_a_signal_times_out() {
    assert_eq!(states(example!("signal-timeout")), "RRRRBBBRRC");
}

#[test]
fn cleanup_may_schedule_and_await_while_the_state_stays_cancelling() {
    assert_eq!(states(example!("cancelled-with-refund")), "RRBBBRRBNNNNNNX");
}

#[test]
fn every_prefix_of_an_example_recovers() {
    let events = read(example!("order"));
    for length in 1..=events.len() {
        let journal = Journal::recover(own(), events[..length].to_vec()).unwrap();
        assert_eq!(journal.events(), &events[..length]);
    }
    assert_eq!(
        Journal::recover(own(), Vec::new()).unwrap_err().rule.id(),
        "S-2"
    );
}
