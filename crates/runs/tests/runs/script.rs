//! Logs as short text, so that a test reads as the run it is about: `StepFailed load#2/3
//! {"error":…}` is the failure of the second logical and third engine attempt of the step `load`.

use onward_base::{Payload, Timestamp};
use onward_runs::{
    AttemptNumber, EmittedAt, ExtraFields, IdempotencyKey, RunEventId, RunEventRecord,
    RunEventWrite, RunId, RunSeq, RunSnapshot,
};

/// The run that every script is about.
pub(crate) fn run_id() -> RunId {
    "run-1".parse().unwrap()
}

pub(crate) fn seq(number: u64) -> RunSeq {
    RunSeq::new(number).unwrap()
}

pub(crate) fn attempt(number: u32) -> AttemptNumber {
    AttemptNumber::new(number).unwrap()
}

/// The event of one line, with the key that its parts make.
pub(crate) fn event(line: &str) -> RunEventWrite {
    let (head, payload) = line.split_once(" {").map_or((line, None), |(head, rest)| {
        (head, Some(format!("{{{rest}")))
    });
    let (event_type, step) = head
        .split_once(' ')
        .map_or((head, None), |(event_type, step)| (event_type, Some(step)));
    let (step, attempts) = step.map_or((None, "1"), |step| match step.split_once('#') {
        None => (Some(step), "1"),
        Some((step, attempts)) => (Some(step), attempts),
    });
    let (logical, engine) = attempts.split_once('/').unwrap_or((attempts, "1"));
    let mut event = RunEventWrite {
        event_id: numbered(0).unwrap(),
        event_type: event_type.parse().unwrap(),
        emitted_at: EmittedAt::from(Timestamp::EPOCH),
        run_id: run_id(),
        tenant_id: "acme".parse().unwrap(),
        project_id: "shop".parse().unwrap(),
        environment_id: "prod".parse().unwrap(),
        plan_id: "plan-1".parse().unwrap(),
        plan_version: "7".parse().unwrap(),
        engine_attempt_id: attempt(engine.parse().unwrap()),
        logical_attempt_id: attempt(logical.parse().unwrap()),
        idempotency_key: IdempotencyKey::from_bytes([0; 32]),
        step_id: step.map(|step| step.parse().unwrap()),
        payload: payload.map(|payload| Payload::parse(&payload).unwrap()),
        extra: ExtraFields::NONE,
    };
    event.idempotency_key = IdempotencyKey::for_event(&event).unwrap();
    event
}

fn numbered(number: u64) -> Result<RunEventId, onward_base::ValueError> {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&(number | 1 << 63).to_be_bytes());
    bytes[6] = 0x40;
    RunEventId::from_bytes(bytes)
}

/// The event at its position; one second passes between two positions.
pub(crate) fn record(number: u64, event: RunEventWrite) -> RunEventRecord {
    let at = Timestamp::EPOCH.plus_ms(number.saturating_mul(1_000));
    let event = RunEventWrite {
        event_id: numbered(number).unwrap(),
        emitted_at: EmittedAt::from(at),
        ..event
    };
    RunEventRecord {
        event,
        run_seq: seq(number),
        persisted_at: at.plus_ms(5),
    }
}

/// The log of these lines, from 1 on.
pub(crate) fn log(lines: &[impl AsRef<str>]) -> Vec<RunEventRecord> {
    (1..)
        .zip(lines)
        .map(|(number, line)| record(number, event(line.as_ref())))
        .collect()
}

/// One line for one snapshot: `RUNNING/RETRYING a:FAILED#1 b:RUNNING#2/3 !1`.
pub(crate) fn line(snapshot: &RunSnapshot) -> String {
    let mut line = snapshot.status.to_string();
    if let Some(substatus) = snapshot.substatus {
        line += &format!("/{substatus}");
    }
    for step in snapshot.steps.iter() {
        let latest = &step.latest;
        line += &format!(
            " {}:{}#{}",
            step.step_id, latest.status, latest.logical_attempt_id
        );
        if latest.engine_attempt_id.as_u32() > 1 {
            line += &format!("/{}", latest.engine_attempt_id);
        }
    }
    if let Some(inconsistencies) = &snapshot.inconsistencies {
        line += &format!(" !{}", inconsistencies.count);
    }
    line
}
