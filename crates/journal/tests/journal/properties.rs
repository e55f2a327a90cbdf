//! Random journals made by commands: whatever is accepted satisfies every rule, survives every
//! encoding, and replays.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

use onward_base::{Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitKind, DeliveryGuarantee, ErrorKind, Event, EventKind, ExecutionError, ExecutionId,
    InvokeKind, InvokePerformer, JoinSetId, Journal, JournalCommand, JournalEvent, PromiseId,
    PromiseState, RetryPolicy, codec, jsonl,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::oracle;
use super::script::{name, own, payload, started};

/// A command in three small numbers, so that proptest can shrink it; ids are taken among those that
/// exist, or just past.
type Step = (u8, u8, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..44_u8, 0..12_u8, 0..4_u8), 0..80)
}

fn any_promise(journal: &Journal, pick: u8) -> PromiseId {
    let known = journal.journal_state().promise_states().count() as u32;
    own().child_promise(u32::from(pick) % (known + 1))
}

/// Usually a promise of the given kind, sometimes any other.
fn promise_that(journal: &Journal, pick: u8, is_wanted: fn(&PromiseState) -> bool) -> PromiseId {
    let wanted = journal
        .journal_state()
        .promise_states()
        .filter(|(_, promise)| is_wanted(promise))
        .map(|(id, _)| id);
    let wanted: Vec<PromiseId> = wanted.collect();
    match wanted.len() {
        0 => any_promise(journal, pick),
        _ if pick == 11 => any_promise(journal, pick),
        count => wanted[usize::from(pick) % count].clone(),
    }
}

/// Mostly what could succeed, sometimes what cannot.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
fn command((choice, a, b): Step, journal: &Journal) -> JournalCommand {
    let promise = any_promise(journal, a);
    let invoke = promise_that(journal, a, |promise| {
        matches!(promise, PromiseState::Invoke(_))
    });
    let set = JoinSetId(promise_that(journal, b, |promise| {
        matches!(promise, PromiseState::JoinSet(_))
    }));
    let timer = promise_that(journal, a, |promise| {
        matches!(promise, PromiseState::Timer { fired: false, .. })
    });
    let timeout = (b >= 2).then_some(timer);
    let signal_name = name(["go", "stop"][usize::from(b % 2)]);
    match choice {
        0..4 => JournalCommand::ScheduleInvoke {
            kind: [InvokeKind::Function, InvokeKind::Http][usize::from(b % 2)],
            function_name: name("task"),
            input: payload(u32::from(a)),
            retry_policy: [None, Some(policy(a))][usize::from(b % 2)]
                .clone()
                .map(Box::new),
            delivery: [
                DeliveryGuarantee::AtLeastOnce,
                DeliveryGuarantee::AtMostOnce,
            ][usize::from(b / 2)],
        },
        4..8 => JournalCommand::StartAttempt {
            promise: invoke,
            performer: InvokePerformer::Owner,
        },
        8..11 => JournalCommand::CompleteAttempt {
            promise: invoke,
            result: payload(u32::from(b)),
        },
        11..13 => JournalCommand::FailAttempt {
            promise: invoke,
            error: error(b),
            entropy: u32::from(a) << 24,
        },
        13 => JournalCommand::GenerateRandom {
            value: vec![a; usize::from(b)].into(),
        },
        14 => JournalCommand::ReadClock,
        15..17 => JournalCommand::ScheduleTimer {
            duration_ms: u64::from(a),
        },
        17..20 => JournalCommand::FireTimer { promise },
        20..22 => JournalCommand::DeliverSignal {
            signal_name,
            payload: payload(u32::from(a)),
        },
        22 => JournalCommand::AwaitSignal {
            signal_name,
            timeout,
        },
        23..25 => JournalCommand::ReceiveSignal { promise },
        25 => JournalCommand::Await {
            waiting_on: vec![promise],
            kind: AwaitKind::Single,
        },
        26 => JournalCommand::Await {
            waiting_on: vec![promise, invoke],
            kind: [AwaitKind::Any, AwaitKind::All][usize::from(b % 2)].clone(),
        },
        27..31 => JournalCommand::Resume,
        31 => JournalCommand::CreateJoinSet,
        32..35 => JournalCommand::SubmitToJoinSet {
            set,
            promise: invoke,
        },
        35..39 => JournalCommand::TakeNextResult { set, timeout },
        39 if a == 0 => {
            let continued_as = (b < 2).then_some(ExecutionId::from_bytes([b; 32]));
            JournalCommand::Complete {
                result: payload(9),
                continued_as,
            }
        }
        40 if a == 0 => JournalCommand::Fail { error: error(b) },
        41 if a < 3 => JournalCommand::RequestCancel {
            reason: SharedText::from("enough"),
        },
        41 if a == 3 => JournalCommand::Cancel {
            reason: SharedText::from("enough"),
        },
        42..44 => JournalCommand::GiveUpInvoke {
            promise: invoke,
            error: error(b),
        },
        _ => JournalCommand::Resume,
    }
}

fn error(pick: u8) -> ExecutionError {
    let kinds = [
        ErrorKind::Timeout,
        ErrorKind::Trap,
        "odd".parse().unwrap(),
        ErrorKind::UserError,
    ];
    let error = ExecutionError::new(kinds[usize::from(pick % 4)].clone(), "no luck");
    if pick == 3 {
        error.into_permanent()
    } else {
        error
    }
}

fn policy(pick: u8) -> RetryPolicy {
    RetryPolicy {
        max_attempts: NonZeroU32::new(u32::from(pick / 2)),
        non_retryable: vec![ErrorKind::Trap],
        initial_interval_ms: 1,
        max_interval_ms: 3,
        timeout_ms: Some(u64::from(pick)),
        ..RetryPolicy::default()
    }
}

/// Runs the commands, a millisecond apart, checking that a refusal changes nothing.
fn run(steps: &[Step]) -> Journal {
    let mut journal = Journal::new(own());
    let start = match started() {
        Event::ExecutionStarted {
            component_digest,
            input,
            ..
        } => JournalCommand::Start {
            component_digest,
            input,
            parent: None,
            key: Some(SharedText::from("key")),
        },
        _ => unreachable!(),
    };
    journal.handle_command(start, Timestamp::EPOCH).unwrap();
    for (step, now_ms) in steps.iter().zip(1..) {
        let version = journal.journal_state().next_sequence();
        let events =
            journal.handle_command(command(*step, &journal), Timestamp::EPOCH.plus_ms(now_ms));
        let recorded = events.as_ref().map_or(0, Vec::len) as u64;
        assert_eq!(journal.journal_state().next_sequence(), version + recorded);
        assert_eq!(journal.events().len() as u64, version + recorded);
    }
    journal
}

/// Runs a property over random journals and reports which events they held: a property over empty
/// journals proves nothing.
fn for_random_journals(
    cases: u32,
    property: impl Fn(&Journal) -> Result<(), TestCaseError>,
) -> BTreeSet<EventKind> {
    let seen = RefCell::new(BTreeSet::new());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    )
    .run(&steps(), |steps| {
        let journal = run(&steps);
        seen.borrow_mut()
            .extend(journal.events().iter().map(|event| event.event.kind()));
        property(&journal)
    })
    .unwrap();
    seen.into_inner()
}

#[test]
fn every_accepted_journal_satisfies_every_rule() {
    let seen = for_random_journals(600, |journal| {
        let events = journal.events();
        for index in 0..events.len() {
            prop_assert_eq!(oracle::broken(&events[..index], &events[index]), []);
        }
        Ok(())
    });
    assert_eq!(
        seen.len(),
        EventKind::ALL.len(),
        "some events never happen: {seen:?}"
    );
}

#[test]
fn recovering_what_was_encoded_gives_the_same_journal() {
    for_random_journals(800, |journal| {
        let events = journal.events();
        for split in [0, events.len() / 2] {
            let (head, tail) = events.split_at(split);
            let mut decoded =
                codec::decode_record(own(), &codec::encode_record(own(), head).unwrap()).unwrap();
            decoded.extend(
                codec::decode_record(own(), &codec::encode_record(own(), tail).unwrap()).unwrap(),
            );
            prop_assert_eq!(&decoded[..], events);
            let recovered = Journal::recover(own(), decoded).unwrap();
            prop_assert_eq!(format!("{recovered:?}"), format!("{journal:?}"));
        }
        Ok(())
    });
}

#[test]
fn json_lines_read_back_as_the_same_events() {
    for_random_journals(800, |journal| {
        let mut relative = jsonl::JournalLineReader::for_execution(own());
        let mut absolute = jsonl::JournalLineReader::new();
        for event in journal.events() {
            let line = jsonl::JournalLine::new(event, own()).to_string();
            prop_assert_eq!(&relative.read_line(&line).unwrap(), event);
            let elsewhere =
                jsonl::JournalLine::new(event, onward_journal::ExecutionId::default()).to_string();
            let read = absolute.read_line(&elsewhere).unwrap();
            prop_assert_eq!(
                jsonl::JournalLine::new(&read, absolute.execution_id()).to_string(),
                line
            );
        }
        Ok(())
    });
}

/// The event with another number for the operation it begins, if it begins one.
fn with_next_number(event: &JournalEvent) -> Option<JournalEvent> {
    let mut event = event.clone();
    match &mut event.event {
        Event::InvokeScheduled { promise_id, .. }
        | Event::RandomGenerated { promise_id, .. }
        | Event::TimeRecorded { promise_id, .. }
        | Event::TimerScheduled { promise_id, .. }
        | Event::JoinSetCreated {
            join_set_id: JoinSetId(promise_id),
        } => {
            *promise_id = own().child_promise(promise_id.child_number_in(own())? + 1);
            Some(event)
        }
        _ => None,
    }
}

#[test]
fn a_changed_sequence_or_id_is_not_recovered() {
    for_random_journals(300, |journal| {
        let events = journal.events();
        for index in 0..events.len() {
            let mut moved = events.to_vec();
            moved[index].sequence += 1;
            prop_assert!(Journal::recover(own(), moved).is_err());
            let mut lost = events.to_vec();
            lost.remove(index);
            prop_assert!(index + 1 == events.len() || Journal::recover(own(), lost).is_err());
            if let Some(renamed) = with_next_number(&events[index]) {
                let mut tampered = events.to_vec();
                tampered[index] = renamed;
                prop_assert!(Journal::recover(own(), tampered).is_err());
            }
        }
        let other = onward_journal::ExecutionId::default();
        let names_ids = events
            .iter()
            .any(|event| event.event.promise_ids().next().is_some());
        prop_assert_eq!(Journal::recover(other, events.to_vec()).is_err(), names_ids);
        Ok(())
    });
}

#[test]
fn any_json_text_makes_the_same_payload_again() {
    proptest!(Config { failure_persistence: None, ..Config::default() }, |(text in "\\PC{0,40}")| {
        let payload = Payload::from_value(&text).unwrap();
        prop_assert_eq!(Payload::parse(&format!(" {} ", payload.as_str())).unwrap(), payload);
    });
}
