//! Runs as tables: an event on the left, the snapshot after it on the right.

use expect_test::{Expect, expect};
use onward_runs::{RunSnapshot, reduce_event};

use super::script::{line, log, run_id};

#[expect(
    clippy::needless_pass_by_value,
    reason = "reads as a table of what is expected"
)]
fn dialogue(lines: &[&str], expected: Expect) -> RunSnapshot {
    let mut text = String::new();
    let mut snapshot = RunSnapshot::new(run_id());
    for (source, event) in lines.iter().zip(&log(lines)) {
        snapshot = reduce_event(snapshot, event);
        assert_eq!(snapshot.last_event_seq, event.run_seq);
        let name = source.split_once(" {").map_or(*source, |(head, _)| head);
        text += &format!("{name:<20} {}\n", line(&snapshot));
    }
    expected.assert_eq(&text);
    snapshot
}

#[test]
fn a_run_that_succeeds() {
    dialogue(
        &[
            "RunQueued",
            "RunApproved",
            r#"RunStarted {"engineRunRef":{"workflow":"w-1","run":1e400}}"#,
            "StepStarted extract",
            "StepStarted load",
            r#"StepCompleted load {"artifactRefs":[{"uri":"s3://b/2","kind":"log-bundle"}]}"#,
            r#"StepCompleted extract {"artifacts":[{"uri":"s3://b/1","kind":"table","sha256":"ab","sizeBytes":9,"expiresAt":"2027"}]}"#,
            r#"StepSkipped report {"reason":"CONDITION_FALSE"}"#,
            "RunCompleted",
        ],
        expect![[r#"
            RunQueued            PENDING
            RunApproved          APPROVED
            RunStarted           RUNNING
            StepStarted extract  RUNNING extract:RUNNING#1
            StepStarted load     RUNNING extract:RUNNING#1 load:RUNNING#1
            StepCompleted load   RUNNING extract:RUNNING#1 load:SUCCESS#1
            StepCompleted extract RUNNING extract:SUCCESS#1 load:SUCCESS#1
            StepSkipped report   RUNNING extract:SUCCESS#1 load:SUCCESS#1 report:SKIPPED#1
            RunCompleted         COMPLETED extract:SUCCESS#1 load:SUCCESS#1 report:SKIPPED#1
        "#]],
    );
}

#[test]
fn a_run_whose_step_is_tried_again() {
    dialogue(
        &[
            "RunStarted",
            "StepStarted load",
            "StepStarted load#1/2",
            r#"StepFailed load#1/2 {"error":{"category":"NETWORK","message":"reset","retryable":true},"artifacts":[{"uri":"u","kind":"log"}]}"#,
            "StepStarted load#2",
            "StepStarted other",
            "StepCompleted load#2",
            "StepFailed other",
            r#"StepSkipped other {"reason":"OPERATOR_SKIP"}"#,
            "RunCompleted",
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepStarted load     RUNNING load:RUNNING#1
            StepStarted load#1/2 RUNNING load:RUNNING#1/2
            StepFailed load#1/2  RUNNING load:FAILED#1/2
            StepStarted load#2   RUNNING/RETRYING load:RUNNING#2
            StepStarted other    RUNNING/RETRYING load:RUNNING#2 other:RUNNING#1
            StepCompleted load#2 RUNNING load:SUCCESS#2 other:RUNNING#1
            StepFailed other     RUNNING load:SUCCESS#2 other:FAILED#1
            StepSkipped other    RUNNING load:SUCCESS#2 other:SKIPPED#1
            RunCompleted         COMPLETED load:SUCCESS#2 other:SKIPPED#1
        "#]],
    );
}

#[test]
fn a_failed_run_keeps_the_cause() {
    let snapshot = dialogue(
        &[
            "RunStarted",
            "StepStarted a",
            "StepStarted b",
            r#"StepFailed a {"error":{"code":"E1","message":"no"}}"#,
            "StepCompleted b",
            r#"StepSkipped c {"reason":"DEPENDENCY_FAILED"}"#,
            r#"RunFailed {"error":{"code":"STEP_FAILED","category":"X","message":"a failed","retryable":false}}"#,
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepStarted a        RUNNING a:RUNNING#1
            StepStarted b        RUNNING a:RUNNING#1 b:RUNNING#1
            StepFailed a         RUNNING a:FAILED#1 b:RUNNING#1
            StepCompleted b      RUNNING a:FAILED#1 b:SUCCESS#1
            StepSkipped c        RUNNING a:FAILED#1 b:SUCCESS#1 c:SKIPPED#1
            RunFailed            FAILED a:FAILED#1 b:SUCCESS#1 c:SKIPPED#1
        "#]],
    );
    assert_eq!(snapshot.failed_steps, 1);
    let error = snapshot.error.unwrap();
    assert_eq!(
        (&*error.code, &*error.message, error.retryable),
        ("STEP_FAILED", "a failed", false)
    );
    assert_eq!(snapshot.total_duration_ms, Some(6_000));
}

#[test]
fn a_pause_drains() {
    dialogue(
        &[
            "RunStarted",
            "StepStarted a",
            r#"RunPaused {"substatus":"WAITING_APPROVAL"}"#,
            "StepStarted b",
            "StepCompleted a",
            "StepSkipped c",
            "RunResumed",
            "StepStarted b",
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepStarted a        RUNNING a:RUNNING#1
            RunPaused            PAUSED/DRAINING a:RUNNING#1
            StepStarted b        PAUSED/DRAINING a:RUNNING#1 !1
            StepCompleted a      PAUSED/WAITING_APPROVAL a:SUCCESS#1 !1
            StepSkipped c        PAUSED/WAITING_APPROVAL a:SUCCESS#1 c:SKIPPED#1 !1
            RunResumed           RUNNING a:SUCCESS#1 c:SKIPPED#1 !1
            StepStarted b        RUNNING a:SUCCESS#1 c:SKIPPED#1 b:RUNNING#1 !1
        "#]],
    );
}

#[test]
fn cancellation_has_two_phases() {
    let snapshot = dialogue(
        &[
            "RunStarted",
            "StepStarted a",
            "RunCancelRequested",
            "RunCancelRequested",
            "RunPaused",
            "RunResumed",
            "StepFailed a",
            r#"RunCancelled {"substatus":"CONTINUE_AS_NEW"}"#,
            "StepStarted a#2",
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepStarted a        RUNNING a:RUNNING#1
            RunCancelRequested   RUNNING/CANCELLING a:RUNNING#1
            RunCancelRequested   RUNNING/CANCELLING a:RUNNING#1 !1
            RunPaused            RUNNING/CANCELLING a:RUNNING#1 !2
            RunResumed           RUNNING/CANCELLING a:RUNNING#1 !3
            StepFailed a         RUNNING/CANCELLING a:FAILED#1 !3
            RunCancelled         CANCELLED a:FAILED#1 !3
            StepStarted a#2      CANCELLED a:FAILED#1 !4
        "#]],
    );
    assert_eq!(snapshot.announced_substatus, None);
    expect![[r#"{"count":4,"first":{"runSeq":4,"code":"INVALID_TRANSITION","message":"RunCancelRequested cannot follow: the run is RUNNING, being cancelled, with a step running"}}"#]].assert_eq(&serde_json::to_string(&snapshot.inconsistencies).unwrap());
}

#[test]
fn a_queued_run_can_be_cancelled() {
    let snapshot = dialogue(
        &["RunQueued", "RunCancelRequested", "RunCancelled"],
        expect![[r#"
        RunQueued            PENDING
        RunCancelRequested   PENDING/CANCELLING
        RunCancelled         CANCELLED
    "#]],
    );
    assert_eq!(
        snapshot.completed_at.unwrap().as_str(),
        "1970-01-01T00:00:03Z"
    );
    assert_eq!(snapshot.total_duration_ms, None, "it never started");
}

#[test]
fn the_substatus_of_a_run_is_shown_unless_a_step_is_retrying() {
    dialogue(
        &[
            r#"RunQueued {"substatus":"WAITING_APPROVAL"}"#,
            r#"RunStarted {"substatus":"CONTINUE_AS_NEW"}"#,
            "StepFailed a",
            "StepStarted a#2",
            "StepCompleted a#2",
            r#"RunPaused {"substatus":"DRAINING"}"#,
            r#"RunResumed {"substatus":7}"#,
        ],
        expect![[r#"
            RunQueued            PENDING/WAITING_APPROVAL
            RunStarted           RUNNING/CONTINUE_AS_NEW
            StepFailed a         RUNNING/CONTINUE_AS_NEW a:FAILED#1
            StepStarted a#2      RUNNING/RETRYING a:RUNNING#2
            StepCompleted a#2    RUNNING/CONTINUE_AS_NEW a:SUCCESS#2
            RunPaused            PAUSED a:SUCCESS#2
            RunResumed           RUNNING a:SUCCESS#2
        "#]],
    );
}

#[test]
fn signals_and_unknown_types_change_nothing() {
    let decided = r#"SignalAccepted {"signalType":"CANCEL","signalId":"s"}"#;
    let refused = r#"SignalRejected a {"signalType":"SKIP_STEP","signalId":"t"}"#;
    dialogue(
        &[
            decided,
            "RunStarted",
            refused,
            "RunContinued",
            "StepCorrected a",
            "x",
            "RunCompleted",
            decided,
            "RunArchived",
        ],
        expect![[r#"
            SignalAccepted       PENDING
            RunStarted           RUNNING
            SignalRejected a     RUNNING
            RunContinued         RUNNING
            StepCorrected a      RUNNING
            x                    RUNNING
            RunCompleted         COMPLETED
            SignalAccepted       COMPLETED
            RunArchived          COMPLETED
        "#]],
    );
}

#[test]
fn a_step_may_end_without_a_recorded_start() {
    let snapshot = dialogue(
        &[
            "RunStarted",
            "StepCompleted a",
            "StepFailed b",
            "RunPaused",
            "StepFailed c",
            "StepCompleted c",
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepCompleted a      RUNNING a:SUCCESS#1
            StepFailed b         RUNNING a:SUCCESS#1 b:FAILED#1
            RunPaused            PAUSED a:SUCCESS#1 b:FAILED#1
            StepFailed c         PAUSED a:SUCCESS#1 b:FAILED#1 c:FAILED#1
            StepCompleted c      PAUSED a:SUCCESS#1 b:FAILED#1 c:FAILED#1 !1
        "#]],
    );
    assert!(
        snapshot
            .steps
            .iter()
            .all(|step| step.latest.started_at.is_none() && step.latest.completed_at.is_some())
    );
}

#[test]
fn attempts_out_of_order_are_ignored() {
    dialogue(
        &[
            "RunStarted",
            "StepStarted a#2",
            "StepStarted a",
            "StepStarted a",
            "StepCompleted a#2",
            "StepFailed a",
            "StepStarted a",
            "StepStarted a#3",
            "StepStarted a#2",
            "StepFailed a#1",
            "StepSkipped a#1",
            "StepCompleted a#2/5",
            "StepStarted a#3",
            "StepSkipped a#2",
        ],
        expect![[r#"
            RunStarted           RUNNING
            StepStarted a#2      RUNNING !1
            StepStarted a        RUNNING a:RUNNING#1 !1
            StepStarted a        RUNNING a:RUNNING#1 !2
            StepCompleted a#2    RUNNING a:RUNNING#1 !3
            StepFailed a         RUNNING a:FAILED#1 !3
            StepStarted a        RUNNING a:FAILED#1 !4
            StepStarted a#3      RUNNING a:FAILED#1 !5
            StepStarted a#2      RUNNING/RETRYING a:RUNNING#2 !5
            StepFailed a#1       RUNNING/RETRYING a:RUNNING#2 !6
            StepSkipped a#1      RUNNING/RETRYING a:RUNNING#2 !7
            StepCompleted a#2/5  RUNNING a:SUCCESS#2/5 !7
            StepStarted a#3      RUNNING a:SUCCESS#2/5 !8
            StepSkipped a#2      RUNNING a:SUCCESS#2/5 !9
        "#]],
    );
}

#[test]
fn a_run_with_a_running_step_does_not_complete() {
    dialogue(
        &[
            "RunStarted",
            "StepStarted a",
            "RunCompleted",
            "StepCompleted a",
            "RunCompleted",
        ],
        expect![[r#"
        RunStarted           RUNNING
        StepStarted a        RUNNING a:RUNNING#1
        RunCompleted         RUNNING a:RUNNING#1 !1
        StepCompleted a      RUNNING a:SUCCESS#1 !1
        RunCompleted         COMPLETED a:SUCCESS#1 !1
    "#]],
    );
}
