//! Small runs, written down as the names of their events.

use onward_runs::{
    AttemptNumber, ExtraFields, IdempotencyKey, IdempotencyKeyParts, RunEventId, RunEventWrite,
    RunId,
};

/// `"RunStarted, StepStarted a, StepCompleted a"` as events of run `run`.
pub(crate) fn script(run: &str, text: &str) -> Vec<RunEventWrite> {
    text.split(", ")
        .enumerate()
        .map(|(place, line)| event(run, place, line))
        .collect()
}

fn event(run: &str, place: usize, line: &str) -> RunEventWrite {
    let (event_type, step) = line
        .split_once(' ')
        .map_or((line, None), |(event_type, step)| (event_type, Some(step)));
    let mut id = [0; 16];
    id[..8].copy_from_slice(
        &run.bytes()
            .fold(7_u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte))
            .to_be_bytes(),
    );
    id[14..].copy_from_slice(&u16::try_from(place).unwrap().to_be_bytes());
    (id[6], id[8]) = (0x40, 0x80);
    let mut event = RunEventWrite {
        event_id: RunEventId::from_bytes(id).unwrap(),
        event_type: event_type.parse().unwrap(),
        emitted_at: "2026-03-01T12:00:00Z".parse().unwrap(),
        run_id: run.parse().unwrap(),
        tenant_id: "t".parse().unwrap(),
        project_id: "p".parse().unwrap(),
        environment_id: "e".parse().unwrap(),
        plan_id: "plan".parse().unwrap(),
        plan_version: "1".parse().unwrap(),
        engine_attempt_id: AttemptNumber::FIRST,
        logical_attempt_id: AttemptNumber::FIRST,
        idempotency_key: IdempotencyKey::from_bytes([0; 32]),
        step_id: step.map(|step| step.parse().unwrap()),
        payload: None,
        extra: ExtraFields::NONE,
    };
    event.idempotency_key = IdempotencyKeyParts::from_event(&event, None)
        .current_preimage()
        .compute_key();
    event
}

pub(crate) fn run_id(run: &str) -> RunId {
    run.parse().unwrap()
}
