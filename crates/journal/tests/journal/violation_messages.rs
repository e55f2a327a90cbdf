//! The messages of violations: the rule, the position, and the reason.

use onward_journal::{ErrorKind, Event};

use super::breakers::{never_after, only, signal};
use super::script::*;

#[test]
fn a_violation_names_the_rule_the_sequence_and_the_event() {
    let violation = judge(&record(&[
        started(),
        scheduled(0),
        attempted(0, 1),
        attempted(0, 2),
    ]))
    .unwrap_err();
    assert_eq!(
        violation.to_string(),
        "H-5 (started_follows_scheduled_or_retrying) at sequence 3, InvokeStarted: attempt 1 of root.0 is still in \
         flight. An attempt starts only after InvokeScheduled or InvokeRetrying, never beside another."
    );
}

#[test]
fn the_message_of_a_policy_violation_names_the_limit() {
    let message = |policy| {
        let events = [
            started(),
            scheduled_with(0, policy),
            attempted(0, 1),
            retrying(0, 1),
        ];
        judge(&record(&events)).unwrap_err().message
    };
    assert_eq!(message(only(1)), "root.0 has at most 1 attempts");
    assert_eq!(
        message(never_after(ErrorKind::UserError)),
        "root.0 is not retried after a failure of kind user_error"
    );
    let permanent = retrying_after(0, 1, error("never").into_permanent());
    let text = judge(&record(&[
        started(),
        scheduled(0),
        attempted(0, 1),
        permanent,
    ]))
    .unwrap_err()
    .message;
    assert_eq!(text, "root.0 failed for good, its error is not retryable");
    let timeout_only = scheduled_with(0, never_after(ErrorKind::Timeout));
    judge(&record(&[
        started(),
        timeout_only,
        attempted(0, 1),
        retrying(0, 1),
    ]))
    .unwrap();
}

#[test]
fn the_message_about_a_deadline_names_its_fault() {
    let message = |before: &[Event], numbers: &[u32]| {
        let wait = awaiting(signal("go"), numbers);
        judge(&record(&[&[started()], before, &[wait]].concat()))
            .unwrap_err()
            .message
    };
    assert_eq!(
        message(&[], &[0, 1]),
        "the deadline root.1 was never allocated"
    );
    assert_eq!(
        message(&[scheduled(0)], &[1, 0]),
        "the deadline root.0 is not a timer"
    );
    assert_eq!(
        message(&[timer(0), fired(0)], &[1, 0]),
        "the deadline root.0 fired already"
    );
    assert_eq!(
        message(&[timer(0)], &[0, 0]),
        "root.0 cannot be the signal and its deadline"
    );
    let expected = "a wait for signal \"go\" names 0 promises instead of one, or one and a timer";
    assert_eq!(message(&[], &[]), expected);
}

#[test]
fn the_message_about_an_outcome_names_the_current_attempt() {
    let message = |last: Event| {
        judge(&record(&[
            started(),
            scheduled(0),
            attempted(0, 1),
            retrying(0, 1),
            last,
        ]))
        .unwrap_err()
        .message
    };
    assert_eq!(
        message(completed(0, 0, 1)),
        "no attempt of root.0 is in flight"
    );
    assert_eq!(
        message(failed(0, 2)),
        "attempt 2 of root.0 where 1 failed last"
    );
}
