//! For every rule, the shortest journals that break it with their last event. Code and oracle must
//! report the rule by its name.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use onward_journal::{
    AwaitKind, ErrorKind, Event, ExecutionId, ExecutionPhase, INVARIANTS, JournalEvent,
    JournalState, LifecycleAction, RetryPolicy, Rule, RuleEnforcement, phase_transition,
};

use super::oracle;
use super::script::*;

macro_rules! breakers {
    ($($rule:ident $(as $reported:ident)? => $name:ident: $events:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let reported = [$(Rule::$reported,)? Rule::$rule][0];
                assert_breaks(Rule::$rule, reported, &record(&$events));
            }
        )*

        /// Which test breaks which rule.
        pub(crate) const BREAKERS: &[(Rule, &str)] = &[$((Rule::$rule, stringify!($name)),)*];
    };
}

/// Everything but the last event is fine; the last one breaks `rule` for the code and for the
/// oracle and is refused as `reported`.
fn assert_breaks(rule: Rule, reported: Rule, events: &[JournalEvent]) {
    let (last, before) = events.split_last().unwrap();
    judge(before).unwrap();
    for (index, event) in before.iter().enumerate() {
        assert_eq!(
            oracle::broken(&before[..index], event),
            [],
            "the oracle refuses {event:?}"
        );
    }
    let violation = judge(events).unwrap_err();
    assert_eq!(
        (violation.rule, violation.sequence, violation.event),
        (reported, last.sequence, last.event.kind())
    );
    assert!(
        oracle::broken(before, last).contains(&rule),
        "the oracle does not report {rule}"
    );
    assert!(
        own_check_refuses(rule, before, last),
        "{rule} relies on another rule"
    );
    assert!(!violation.message.is_empty() && violation.to_string().starts_with(reported.id()));
}

/// Whether the rule's own check refuses the event, regardless of the other rules.
fn own_check_refuses(rule: Rule, before: &[JournalEvent], last: &JournalEvent) -> bool {
    let mut fold = JournalState::new(own());
    before
        .iter()
        .for_each(|event| fold.push_event(event).unwrap());
    match rule.invariant().enforced {
        RuleEnforcement::Content(check) => check(&fold, last).is_some(),
        RuleEnforcement::Status => fold
            .check_event(last)
            .is_err_and(|violation| violation.rule == rule),
        RuleEnforcement::Command => false,
    }
}

pub(crate) fn only(max_attempts: u32) -> Option<RetryPolicy> {
    Some(RetryPolicy {
        max_attempts: NonZeroU32::new(max_attempts),
        ..RetryPolicy::default()
    })
}

pub(crate) fn never_after(kind: ErrorKind) -> Option<RetryPolicy> {
    Some(RetryPolicy {
        non_retryable: vec![kind],
        ..RetryPolicy::default()
    })
}

pub(crate) fn signal(text: &str) -> AwaitKind {
    AwaitKind::Signal(name(text))
}

breakers! {
    S2 => a_journal_begins_with_started: [random(0)];
    S2 => started_comes_only_once: [started(), started()];
    S3 => nothing_ends_twice: [started(), complete(), fail()];
    S3 => cancelled_after_completed_ends_twice: [started(), cancel_requested(), complete(), cancelled()];
    S4 => nothing_follows_the_end: [started(), complete(), random(0)];
    S4 => nothing_starts_again: [started(), complete(), started()];
    S4 => no_signal_is_delivered_after_the_end: [started(), fail(), delivered("go", 1, 0)];
    S4 => no_attempt_ends_after_the_end: [started(), scheduled(0), attempted(0, 1), complete(), completed(0, 0, 1)];
    S4 => cancel_is_not_requested_after_the_end: [started(), complete(), cancel_requested()];
    S5 => cancelled_needs_a_request: [started(), cancelled()];
    S5 => cancelled_from_blocked_needs_a_request: [started(), timer(0), awaiting_one(0), cancelled()];

    ID2 => the_first_operation_is_number_0: [started(), random(1)];
    ID2 => a_number_is_not_taken_twice: [started(), random(0), clock(0)];
    ID2 => a_timer_takes_the_next_number: [started(), timer(0), timer(2)];
    ID2 => a_join_set_takes_the_next_number: [started(), created(3)];
    ID2 => an_invoke_takes_the_next_number: [started(), scheduled(0), scheduled(0)];
    ID2 => a_buffered_signal_takes_the_next_number: [started(), delivered("go", 1, 0), received(1, "go", 1, 0)];
    ID2 => a_wait_for_a_signal_takes_the_next_number: [started(), random(0), awaiting_signal(0, "go")];
    ID2 => a_received_signal_is_not_received_again: [
        started(), awaiting_signal(0, "go"), delivered("go", 1, 0), delivered("go", 2, 0),
        received(0, "go", 1, 0), received(0, "go", 2, 0)
    ];
    ID2 => an_interrupted_wait_does_not_receive: [
        started(), awaiting_signal(0, "go"), cancel_requested(), delivered("go", 1, 0), received(0, "go", 1, 0)
    ];
    ID2 => a_wait_with_a_deadline_takes_the_next_number: [
        started(), timer(0), timer(1), awaiting_signal_until(1, "go", 0)
    ];
    ID2 => a_wait_that_timed_out_does_not_receive: [
        started(), timer(0), awaiting_signal_until(1, "go", 0), fired(0), resumed(), delivered("go", 1, 0),
        received(1, "go", 1, 0)
    ];
    ID2 => a_deadline_that_is_awaited_again_does_not_receive: [
        started(), timer(0), awaiting_signal_until(1, "go", 0), cancel_requested(), awaiting(AwaitKind::Any, &[0, 1]),
        delivered("go", 1, 0), received(0, "go", 1, 0)
    ];

    SE1 => an_unknown_invoke_is_not_started: [started(), attempted(0, 1)];
    SE1 => a_timer_is_not_started: [started(), timer(0), attempted(0, 1)];
    SE2 => an_invoke_that_never_started_does_not_complete: [started(), scheduled(0), completed(0, 0, 1)];
    SE2 => an_unknown_invoke_does_not_complete: [started(), completed(0, 0, 1)];
    SE2 => an_invoke_that_never_started_is_not_given_up: [started(), scheduled(0), failed(0, 0)];
    SE3 => an_invoke_that_never_started_is_not_retried: [started(), scheduled(0), retrying(0, 1)];
    SE3 => an_attempt_that_never_started_is_not_retried: [started(), scheduled(0), attempted(0, 1), retrying(0, 2)];
    SE3 => there_is_no_attempt_0: [started(), scheduled(0), attempted(0, 1), retrying(0, 0)];
    SE4 => a_completed_invoke_is_not_started: [
        started(), scheduled(0), attempted(0, 1), completed(0, 0, 1), attempted(0, 2)
    ];
    SE4 => a_completed_invoke_is_not_retried: [
        started(), scheduled(0), attempted(0, 1), completed(0, 0, 1), retrying(0, 1)
    ];
    SE4 => a_second_completion_for_a_promise_is_refused: [
        started(), scheduled(0), attempted(0, 1), completed(0, 0, 1), completed(0, 0, 1)
    ];
    SE4 => an_invoke_that_was_given_up_is_not_started: [
        started(), scheduled(0), attempted(0, 1), retrying(0, 1), failed(0, 1), attempted(0, 2)
    ];

    CF1 => an_unknown_timer_does_not_fire: [started(), fired(0)];
    CF1 => an_invoke_does_not_fire: [started(), scheduled(0), fired(0)];
    CF2 => an_undelivered_signal_is_not_received: [started(), received(0, "go", 1, 0)];
    CF2 => a_signal_of_another_name_is_not_received: [started(), delivered("stop", 1, 0), received(0, "go", 1, 0)];
    CF2 => there_is_no_delivery_0: [started(), delivered("go", 1, 0), received(0, "go", 0, 0)];
    CF2 => a_received_payload_is_the_delivered_one: [started(), delivered("go", 1, 0), received(0, "go", 1, 1)];
    CF3 => a_delivery_is_not_consumed_twice: [
        started(), delivered("go", 1, 0), received(0, "go", 1, 0), received(1, "go", 1, 0)
    ];
    CF4 => a_wait_for_a_signal_names_a_promise: [started(), awaiting(signal("go"), &[])];
    CF4 => a_wait_for_a_signal_has_one_deadline: [started(), timer(0), timer(1), awaiting(signal("go"), &[2, 0, 1])];
    CF4 => an_unknown_promise_is_no_deadline: [started(), awaiting_signal_until(0, "go", 1)];
    CF4 => an_invoke_is_no_deadline: [started(), scheduled(0), awaiting_signal_until(1, "go", 0)];
    CF4 => a_timer_that_fired_is_no_deadline: [started(), timer(0), fired(0), awaiting_signal_until(1, "go", 0)];
    CF4 => a_signal_is_not_its_own_deadline: [started(), timer(0), awaiting_signal_until(0, "go", 0)];
    CF4 => a_deadline_stands_after_the_signal: [started(), timer(0), awaiting_signal_until(0, "go", 1)];
    CF4 => a_deadline_does_not_receive: [
        started(), timer(0), awaiting_signal_until(1, "go", 0), delivered("go", 1, 0), received(0, "go", 1, 0)
    ];
    CF4 => another_promise_does_not_receive_what_is_waited_for: [
        started(), awaiting_signal(0, "go"), delivered("go", 1, 0), received(1, "go", 1, 0)
    ];
    CF4 => another_signal_does_not_satisfy_a_wait: [
        started(), awaiting_signal(0, "go"), delivered("stop", 1, 0), received(0, "stop", 1, 0)
    ];
    CF4 => a_signal_awaited_again_keeps_its_name: [
        started(), awaiting_signal(0, "go"), cancel_requested(), awaiting(AwaitKind::Any, &[0]),
        delivered("stop", 1, 0), received(0, "stop", 1, 0)
    ];

    CF4 => a_satisfied_wait_keeps_its_name: [
        started(), awaiting_signal(0, "go"), delivered("go", 1, 0), received(0, "go", 1, 0), delivered("stop", 1, 0),
        received(0, "stop", 1, 0)
    ];
    CF4 => an_interrupted_wait_keeps_its_name: [
        started(), awaiting_signal(0, "go"), cancel_requested(), delivered("stop", 1, 0), received(0, "stop", 1, 0)
    ];

    JS1 => a_set_that_was_never_created_takes_no_member: [started(), scheduled(0), submitted(1, 0)];
    JS1 => an_invoke_is_not_a_set: [started(), scheduled(0), scheduled(1), submitted(0, 1)];
    JS2 => a_set_that_gave_a_result_takes_no_member: [
        started(), created(0), scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 5, 1), taken(0, 1, 5),
        scheduled(2), submitted(0, 2)
    ];
    JS3 => a_set_gives_only_its_members: [
        started(), created(0), scheduled(1), attempted(1, 1), completed(1, 5, 1), taken(0, 1, 5)
    ];
    JS3 => a_set_does_not_give_another_sets_member: [
        started(), created(0), created(1), scheduled(2), submitted(1, 2), attempted(2, 1), completed(2, 5, 1),
        taken(0, 2, 5)
    ];
    JS4 => a_set_gives_only_what_completed: [started(), created(0), scheduled(1), submitted(0, 1), taken(0, 1, 5)];
    JS5 => a_result_is_not_taken_twice: [
        started(), created(0), scheduled(1), submitted(0, 1), scheduled(2), submitted(0, 2), attempted(1, 1),
        completed(1, 5, 1), taken(0, 1, 5), taken(0, 1, 5)
    ];
    JS6 as JS5 => an_exhausted_set_gives_nothing: [
        started(), created(0), scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 5, 1), taken(0, 1, 5),
        taken(0, 1, 5)
    ];
    JS7 => a_promise_has_one_owner: [
        started(), created(0), created(1), scheduled(2), submitted(0, 2), submitted(1, 2)
    ];

    G1 => a_blocked_execution_schedules_nothing: [started(), timer(0), awaiting_one(0), scheduled(1)];
    G1 => a_blocked_execution_draws_no_entropy: [started(), timer(0), awaiting_one(0), random(1)];
    G1 => a_blocked_execution_receives_only_what_it_waits_for: [
        started(), timer(0), awaiting_one(0), delivered("go", 1, 0), received(1, "go", 1, 0)
    ];
    G1 => blocked_cleanup_schedules_nothing: [started(), cancel_requested(), timer(0), awaiting_one(0), scheduled(1)];
    G2 => a_blocked_execution_does_not_block_again: [started(), timer(0), awaiting_one(0), awaiting_one(0)];
    G2 => blocked_cleanup_does_not_block_again: [
        started(), timer(0), cancel_requested(), awaiting_one(0), awaiting_one(0)
    ];
    G3 => a_blocked_execution_does_not_complete: [started(), timer(0), awaiting_one(0), complete()];
    G3 => a_blocked_execution_does_not_fail: [started(), timer(0), awaiting_one(0), fail()];
    G3 => a_satisfied_execution_resumes_before_it_completes: [started(), timer(0), awaiting_one(0), fired(0), complete()];
    G3 => cleanup_with_an_open_await_does_not_complete: [
        started(), cancel_requested(), timer(0), awaiting_one(0), complete()
    ];
    G4 => an_execution_that_does_not_wait_does_not_resume: [started(), resumed()];
    G4 => an_unsatisfied_await_does_not_resume: [started(), timer(0), awaiting_one(0), resumed()];
    G4 => an_unsatisfied_all_does_not_resume: [
        started(), timer(0), timer(1), awaiting(AwaitKind::All, &[0, 1]), fired(0), resumed()
    ];
    G4 => an_unsatisfied_any_does_not_resume: [
        started(), timer(0), timer(1), timer(2), awaiting(AwaitKind::Any, &[0, 1]), fired(2), resumed()
    ];
    G4 => a_delivered_but_unreceived_signal_does_not_resume: [
        started(), awaiting_signal(0, "go"), delivered("go", 1, 0), resumed()
    ];
    G4 => a_wait_does_not_resume_before_its_deadline: [
        started(), timer(0), timer(1), awaiting_signal_until(2, "go", 0), fired(1), delivered("go", 1, 0), resumed()
    ];
    G4 => an_interrupted_await_does_not_resume: [
        started(), timer(0), awaiting_one(0), fired(0), cancel_requested(), resumed()
    ];
    G5 => cancel_is_requested_once: [started(), cancel_requested(), cancel_requested()];
    G5 => blocked_cleanup_is_not_cancelled_again: [
        started(), timer(0), cancel_requested(), awaiting_one(0), cancel_requested()
    ];
    G6 => a_blocked_execution_submits_nothing: [
        started(), created(0), scheduled(1), awaiting_one(1), submitted(0, 1)
    ];
    G6 => a_blocked_execution_takes_nothing: [
        started(), created(0), scheduled(1), submitted(0, 1), timer(2), awaiting_one(2), attempted(1, 1),
        completed(1, 5, 1), taken(0, 1, 5)
    ];

    H1 => a_timer_does_not_fire_twice: [started(), timer(0), fired(0), fired(0)];
    H2 => a_promise_is_not_submitted_twice: [started(), created(0), scheduled(1), submitted(0, 1), submitted(0, 1)];
    H3 => a_taken_result_is_the_recorded_one: [
        started(), created(0), scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 5, 1), taken(0, 1, 6)
    ];
    H3 => a_recorded_success_is_not_taken_as_a_failure: [
        started(), created(0), scheduled(1), submitted(0, 1), attempted(1, 1), completed(1, 5, 1),
        taken_result(0, 1, Err(error("5")))
    ];
    H3 => a_recorded_failure_is_not_taken_as_a_permanent_one: [
        started(), created(0), scheduled(1), submitted(0, 1), attempted(1, 1), failed(1, 1),
        taken_result(0, 1, Err(error("no").into_permanent()))
    ];
    H4 => the_first_attempt_is_1: [started(), scheduled(0), attempted(0, 2)];
    H4 => the_first_attempt_is_not_0: [started(), scheduled(0), attempted(0, 0)];
    H4 => no_attempt_is_left_out: [started(), scheduled(0), attempted(0, 1), retrying(0, 1), attempted(0, 3)];
    H4 => no_attempt_is_repeated: [started(), scheduled(0), attempted(0, 1), retrying(0, 1), attempted(0, 1)];
    H5 => two_attempts_are_not_in_flight_together: [started(), scheduled(0), attempted(0, 1), attempted(0, 2)];
    H6 => another_attempt_does_not_complete: [started(), scheduled(0), attempted(0, 1), completed(0, 0, 2)];
    H6 => a_retried_attempt_does_not_complete: [
        started(), scheduled(0), attempted(0, 1), retrying(0, 1), completed(0, 0, 1)
    ];
    H6 => giving_up_names_the_last_attempt: [
        started(), scheduled(0), attempted(0, 1), retrying(0, 1), attempted(0, 2), retrying(0, 2), failed(0, 1)
    ];
    H6 => an_attempt_is_not_retried_twice: [started(), scheduled(0), attempted(0, 1), retrying(0, 1), retrying(0, 1)];
    H6 => an_earlier_attempt_is_not_retried: [
        started(), scheduled(0), attempted(0, 1), retrying(0, 1), attempted(0, 2), retrying(0, 1)
    ];
    H7 => an_await_names_something: [started(), awaiting(AwaitKind::Any, &[])];
    H7 => an_await_names_nothing_twice: [started(), timer(0), timer(1), awaiting(AwaitKind::All, &[1, 0, 1])];
    H7 => a_single_await_names_one: [started(), timer(0), timer(1), awaiting(AwaitKind::Single, &[0, 1])];
    H8 => an_unknown_promise_is_not_awaited: [started(), awaiting_one(0)];
    H8 => the_whole_list_is_looked_at: [started(), timer(0), awaiting(AwaitKind::Any, &[0, 1])];
    H9 => entropy_is_not_awaited: [started(), random(0), awaiting_one(0)];
    H9 => a_join_set_is_not_awaited: [started(), timer(0), created(1), awaiting(AwaitKind::Any, &[0, 1])];
    H10 => the_first_delivery_is_1: [started(), delivered("go", 2, 0)];
    H10 => deliveries_are_counted_per_name: [started(), delivered("go", 1, 0), delivered("stop", 2, 0)];
    H11 => signals_are_consumed_oldest_first: [
        started(), delivered("go", 1, 0), delivered("go", 2, 0), received(0, "go", 2, 0)
    ];
    H12 => a_timer_is_not_submitted: [started(), created(0), timer(1), submitted(0, 1)];
    H12 => an_unknown_promise_is_not_submitted: [started(), created(0), submitted(0, 1)];
    H12 => a_set_is_not_submitted: [started(), created(0), created(1), submitted(0, 1)];
    H13 => there_are_no_more_attempts_than_allowed: [
        started(), scheduled_with(0, only(1)), attempted(0, 1), retrying(0, 1)
    ];
    H13 => a_final_kind_is_not_retried: [
        started(), scheduled_with(0, never_after(ErrorKind::UserError)), attempted(0, 1), retrying(0, 1)
    ];
    H13 => a_permanent_failure_is_not_retried: [
        started(), scheduled_with(0, only(9)), attempted(0, 1), retrying_after(0, 1, error("never").into_permanent())
    ];
    H13 => a_permanent_failure_is_not_retried_without_a_policy_either: [
        started(), scheduled(0), attempted(0, 1), retrying_after(0, 1, error("never").into_permanent())
    ];
}

#[test]
fn a_sequence_number_is_its_index() {
    for wrong in [0, 2, u64::MAX] {
        let mut events = record(&[started(), random(0)]);
        events[1].sequence = wrong;
        assert_breaks(Rule::S1, Rule::S1, &events);
    }
}

#[test]
fn a_promise_of_another_execution_is_refused() {
    let foreign = ExecutionId::from_bytes([1; 32]).child_promise(0);
    let deep = promise(0).child_promise(0).unwrap();
    let itself = own().root_promise();
    for id in [foreign, deep, itself] {
        assert_breaks(
            Rule::ID1,
            Rule::ID1,
            &record(&[
                started(),
                timer(0),
                Event::TimerFired {
                    promise_id: id.clone(),
                },
            ]),
        );
        let wait = Event::ExecutionAwaiting {
            waiting_on: vec![promise(0), id],
            kind: AwaitKind::Any,
        };
        assert_breaks(Rule::ID1, Rule::ID1, &record(&[started(), timer(0), wait]));
    }
}

#[test]
fn every_rule_of_a_recorded_journal_has_a_breaker_and_a_clause() {
    let special = [Rule::S1, Rule::ID1];
    let broken: BTreeSet<Rule> = BREAKERS
        .iter()
        .map(|(rule, _)| *rule)
        .chain(special)
        .collect();
    let judged: BTreeSet<Rule> = oracle::CLAUSES.iter().map(|(rule, _)| *rule).collect();
    let recorded = INVARIANTS
        .iter()
        .filter(|invariant| !matches!(invariant.enforced, RuleEnforcement::Command));
    let all: BTreeSet<Rule> = recorded.map(|invariant| invariant.rule).collect();
    assert_eq!(broken, all);
    assert_eq!(judged, all);
}

#[test]
fn a_refused_event_changes_nothing() {
    let mut journal = onward_journal::Journal::new(own());
    for event in record(&[started(), timer(0), awaiting_one(0)]) {
        journal.append(event).unwrap();
    }
    let before = format!("{journal:?}");
    let [.., refused] = &record(&[started(), timer(0), awaiting_one(0), resumed()])[..] else {
        unreachable!()
    };
    journal.append(refused.clone()).unwrap_err();
    assert_eq!(format!("{journal:?}"), before);
}

#[test]
fn transition_rules_name_only_status_rules() {
    for phase in ExecutionPhase::ALL {
        for act in LifecycleAction::ALL {
            if let Err(rule) = phase_transition(phase, act) {
                assert!(
                    matches!(rule.invariant().enforced, RuleEnforcement::Status),
                    "{rule} is not a status rule"
                );
            }
        }
    }
}
