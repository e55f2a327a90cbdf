//! What reducing leaves in a snapshot, what it ignores, and why an event is refused.

use expect_test::expect;
use onward_runs::{
    InvalidTransition, RunEventWrite, RunSeq, RunSnapshot, RunStatus, RunTransitionState,
    StepStatus, check_transition, detect_gap, project_run, reduce_event,
};

use super::script::{event, line, log, record, run_id, seq};

const RETRIED: &[&str] = &[
    r#"RunStarted {"engineRunRef":{"workflow":"w-1","run":1e400}}"#,
    "StepStarted load",
    r#"StepFailed load#1/2 {"error":{"category":"NETWORK","message":"reset","retryable":true}}"#,
    "StepStarted load#2",
    r#"StepSkipped report {"reason":"CONDITION_FALSE"}"#,
    r#"StepCompleted load#2 {"artifacts":[{"uri":"s3://b/1","kind":"table","sha256":"ab","sizeBytes":9}]}"#,
    "RunCompleted",
];

#[test]
fn a_snapshot_in_json_has_all_facts_of_its_events() {
    let snapshot = project_run(run_id(), &log(RETRIED));
    expect![[r#"
        {
          "runId": "run-1",
          "status": "COMPLETED",
          "lastEventSeq": 7,
          "steps": [
            {
              "stepId": "load",
              "status": "SUCCESS",
              "logicalAttemptId": 2,
              "engineAttemptId": 1,
              "startedAt": "1970-01-01T00:00:04Z",
              "completedAt": "1970-01-01T00:00:06Z",
              "artifacts": [
                {
                  "uri": "s3://b/1",
                  "kind": "table",
                  "sha256": "ab",
                  "sizeBytes": 9
                }
              ],
              "attempts": [
                {
                  "status": "FAILED",
                  "logicalAttemptId": 1,
                  "engineAttemptId": 2,
                  "startedAt": "1970-01-01T00:00:02Z",
                  "completedAt": "1970-01-01T00:00:03Z",
                  "artifacts": [],
                  "error": {
                    "code": "NETWORK",
                    "message": "reset",
                    "retryable": true
                  }
                }
              ]
            },
            {
              "stepId": "report",
              "status": "SKIPPED",
              "logicalAttemptId": 1,
              "engineAttemptId": 1,
              "completedAt": "1970-01-01T00:00:05Z",
              "artifacts": [],
              "reason": "CONDITION_FALSE"
            }
          ],
          "artifacts": [
            {
              "uri": "s3://b/1",
              "kind": "table",
              "sha256": "ab",
              "sizeBytes": 9
            }
          ],
          "startedAt": "1970-01-01T00:00:01Z",
          "completedAt": "1970-01-01T00:00:07Z",
          "totalDurationMs": 6000,
          "engineRunRef": {"workflow":"w-1","run":1e400},
          "failedSteps": 0
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&snapshot).unwrap());
}

#[test]
fn a_completed_run_has_the_artifacts_of_its_steps_in_their_order() {
    let artifact = |step: &str| {
        format!(r#"StepCompleted {step} {{"artifactRefs":[{{"uri":"{step}","kind":"k"}}]}}"#)
    };
    let lines = [
        "RunStarted",
        "StepStarted a",
        "StepStarted b",
        &artifact("b"),
        &artifact("a"),
        &artifact("c"),
    ];
    let before = project_run(run_id(), &log(&lines));
    assert_eq!(before.artifacts, []);
    let uris = |snapshot: &RunSnapshot| {
        snapshot
            .artifacts
            .iter()
            .map(|it| it.uri.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        uris(&reduce_event(
            before.clone(),
            &record(7, event("RunCompleted"))
        )),
        ["a", "b", "c"]
    );
    assert_eq!(
        uris(&reduce_event(before, &record(7, event("RunFailed")))),
        [""; 0]
    );
}

#[test]
fn the_error_of_an_illegal_event_names_the_reason() {
    let refusals = |lines: &[&str], event: &RunEventWrite| {
        let snapshot = project_run(run_id(), &log(lines));
        check_transition(&snapshot, event).unwrap_err().to_string()
    };
    let mut text = String::new();
    for (lines, line) in [
        (&[][..], "RunPaused"),
        (&["RunStarted", "StepStarted a"], "RunCompleted"),
        (
            &["RunStarted", "StepStarted a", "RunCancelRequested"],
            "RunPaused",
        ),
        (&["RunStarted", "RunPaused"], "StepStarted a"),
        (&["RunStarted"], "StepStarted a#2"),
        (&["RunStarted", "StepFailed a"], "StepStarted a#4"),
        (&["RunStarted", "RunFailed"], "RunCancelled"),
    ] {
        text += &format!("{}\n", refusals(lines, &event(line)));
    }
    let nameless = RunEventWrite {
        step_id: None,
        ..event("StepStarted a")
    };
    text += &format!("{}\n", refusals(&["RunStarted"], &nameless));
    let foreign = RunEventWrite {
        run_id: "run-2".parse().unwrap(),
        ..event("RunStarted")
    };
    text += &format!("{}\n", refusals(&[], &foreign));
    expect![[r#"
        RunPaused cannot follow: the run is PENDING
        RunCompleted cannot follow: the run is RUNNING, with a step running
        RunPaused cannot follow: the run is RUNNING, being cancelled, with a step running
        StepStarted cannot follow: the run is PAUSED
        StepStarted of step a, attempt 2, cannot follow: the step is PENDING
        StepStarted of step a, attempt 4, cannot follow: the step is FAILED at attempt 1
        RunCancelled cannot follow: the run is FAILED
        StepStarted cannot follow: it names no step
        RunStarted belongs to run run-2, not to run-1
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_error_of_an_illegal_event_has_typed_fields() {
    let refused = check_transition(&RunSnapshot::new(run_id()), &event("RunPaused")).unwrap_err();
    let state = RunTransitionState {
        status: RunStatus::Pending,
        is_cancelling: false,
        has_running_step: false,
    };
    assert_eq!(
        refused,
        InvalidTransition::Run {
            event_type: "RunPaused".parse().unwrap(),
            run_state: state
        }
    );
    assert_eq!(InvalidTransition::CODE, "INVALID_TRANSITION");
}

#[test]
fn an_event_of_another_run_does_not_move_the_watermark() {
    let before = project_run(run_id(), &log(&["RunStarted"]));
    let foreign = RunEventWrite {
        run_id: "run-2".parse().unwrap(),
        ..event("RunCompleted")
    };
    assert_eq!(reduce_event(before.clone(), &record(2, foreign)), before);
}

#[test]
fn an_event_is_applied_once() {
    let events = log(&[
        "RunStarted",
        "StepFailed a",
        "StepStarted a#2",
        "RunStarted",
    ]);
    let after = project_run(run_id(), &events);
    for event in &events {
        assert_eq!(reduce_event(after.clone(), event), after);
    }
}

#[test]
fn malformed_payloads_are_ignored() {
    let artifacts = |payload: &str| {
        let lines = [
            "RunStarted".to_owned(),
            format!("StepCompleted a {payload}"),
        ];
        let snapshot = project_run(run_id(), &log(&lines));
        let latest = &snapshot.steps.find_step("a").unwrap().latest;
        assert_eq!(latest.status, StepStatus::Success);
        latest
            .artifacts
            .iter()
            .map(|artifact| artifact.uri.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        artifacts(
            r#"{"artifacts":[{"uri":"a","kind":"k","more":[1]},{"uri":"b"},7,["c","k"],null]}"#
        ),
        ["a"]
    );
    assert_eq!(
        artifacts(
            r#"{"artifacts":[{"uri":"a","kind":"k","sizeBytes":1e400},{"uri":"b","kind":"k"}]}"#
        ),
        ["b"]
    );
    assert_eq!(
        artifacts(r#"{"artifacts":null,"artifactRefs":[{"uri":"a","kind":"k"}]}"#),
        ["a"]
    );
    assert_eq!(
        artifacts(r#"{"artifacts":{"uri":"a","kind":"k"}}"#),
        [""; 0]
    );
    assert_eq!(
        artifacts(r#"{"artifacts":[],"artifacts":[{"uri":"a","kind":"k"}]}"#),
        [""; 0]
    );
}

#[test]
fn an_error_is_built_from_the_fields_that_are_valid() {
    let mut text = String::new();
    for error in [
        r#"{"code":"E","category":"C","message":"m","retryable":true}"#,
        r#"{"category":"C","message":"m","retryable":"yes"}"#,
        r#"{"message":"m"}"#,
        r#"{"code":"E"}"#,
        r#"{"code":7,"message":null,"retryable":true}"#,
        r#"["E","m",true]"#,
        r#""m""#,
        r#"{"message":"\ud800"}"#,
    ] {
        let lines = [
            "RunStarted".to_owned(),
            format!("StepFailed a {{\"error\":{error}}}"),
        ];
        let snapshot = project_run(run_id(), &log(&lines));
        let failure = &snapshot.steps.find_step("a").unwrap().latest.error;
        text += &format!("{error:<60} {}\n", serde_json::to_string(failure).unwrap());
    }
    expect![[r#"
        {"code":"E","category":"C","message":"m","retryable":true}   {"code":"E","message":"m","retryable":true}
        {"category":"C","message":"m","retryable":"yes"}             {"code":"C","message":"m","retryable":false}
        {"message":"m"}                                              {"code":"UNKNOWN","message":"m","retryable":false}
        {"code":"E"}                                                 {"code":"E","message":"","retryable":false}
        {"code":7,"message":null,"retryable":true}                   null
        ["E","m",true]                                               null
        "m"                                                          null
        {"message":"\ud800"}                                         null
    "#]]
    .assert_eq(&text);
}

#[test]
fn clock_skew_makes_no_negative_duration() {
    let mut events = log(&["RunStarted", "RunCompleted"]);
    events[1].event.emitted_at = "1969-01-01T00:00:00Z".parse().unwrap();
    let snapshot = project_run(run_id(), &events);
    assert_eq!(snapshot.total_duration_ms, Some(0));
    assert_eq!(
        snapshot.completed_at.unwrap().as_str(),
        "1969-01-01T00:00:00Z"
    );
}

#[test]
fn a_gap_is_more_than_one_step_ahead() {
    assert_eq!(detect_gap(RunSeq::ZERO, seq(1)), None);
    assert_eq!(detect_gap(seq(9), seq(10)), None);
    assert_eq!(detect_gap(seq(9), seq(9)), None);
    assert_eq!(detect_gap(seq(9), seq(3)), None);
    let gap = detect_gap(seq(9), seq(12)).unwrap();
    assert_eq!((gap.after_seq, gap.before_seq), (seq(9), seq(12)));
    assert_eq!(detect_gap(RunSeq::MAX, RunSeq::MAX), None);
}

#[test]
fn a_log_with_a_gap_reduces_to_its_events() {
    let mut events = log(&["RunStarted", "StepStarted a", "StepCompleted a"]);
    events.remove(1);
    let snapshot = project_run(run_id(), &events);
    assert_eq!(line(&snapshot), "RUNNING a:SUCCESS#1");
    assert_eq!(snapshot.last_event_seq, seq(3));
}

#[test]
fn a_clone_shares_its_steps_and_does_not_follow() {
    let before = project_run(
        run_id(),
        &log(&["RunStarted", "StepStarted a", "StepStarted b"]),
    );
    let after = reduce_event(before.clone(), &record(4, event("StepCompleted a")));
    assert_eq!(line(&before), "RUNNING a:RUNNING#1 b:RUNNING#1");
    assert_eq!(line(&after), "RUNNING a:SUCCESS#1 b:RUNNING#1");
    assert_ne!(before.steps, after.steps);
    assert_eq!(
        format!("{:?}", before.steps),
        format!("{:?}", [&before.steps[0], &before.steps[1]])
    );
    assert!(std::sync::Arc::ptr_eq(&before.steps[1], &after.steps[1]));
}

#[test]
fn a_snapshot_with_a_duplicate_step_is_refused() {
    let snapshot = project_run(
        run_id(),
        &log(&["RunStarted", "StepStarted a", "StepStarted b"]),
    );
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(serde_json::from_str::<RunSnapshot>(&text).is_ok());
    let error =
        serde_json::from_str::<RunSnapshot>(&text.replace(r#""stepId":"b""#, r#""stepId":"a""#))
            .unwrap_err();
    assert!(
        error.to_string().starts_with(r#"duplicate step "a""#),
        "{error}"
    );
}

#[test]
fn a_planned_step_is_pending() {
    let mut text = serde_json::to_value(project_run(
        run_id(),
        &log(&["RunStarted", "StepStarted a"]),
    ))
    .unwrap();
    text["steps"][0]["status"] = "PENDING".into();
    let announced: RunSnapshot = serde_json::from_value(text).unwrap();
    let started = reduce_event(announced, &record(3, event("StepStarted a")));
    assert_eq!(line(&started), "RUNNING a:RUNNING#1");
}
