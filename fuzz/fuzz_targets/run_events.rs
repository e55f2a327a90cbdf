//! Fuzzes `onward state append` with untrusted run events: parsing never panics, parsed events are
//! unchanged after a round trip, and all events reduce to a snapshot that can be stored and read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onward_base::Timestamp;
use onward_runs::{
    AcceptedKeyForms, RunEventRecord, RunEventWrite, RunSeq, RunSnapshot, check_transition,
    reduce_event, verify_idempotency_key,
};

fuzz_target!(|lines: &str| {
    let mut snapshot: Option<RunSnapshot> = None;
    for line in lines.lines() {
        let event = match RunEventWrite::from_json(line) {
            Ok(event) => event,
            Err(error) => {
                let _ = error.to_string();
                continue;
            }
        };
        assert_eq!(
            RunEventWrite::from_json(&event.to_json()).as_ref(),
            Ok(&event)
        );
        let _ = verify_idempotency_key(&event, AcceptedKeyForms::V2OrV1)
            .map_err(|mismatch| mismatch.to_string());
        let before = snapshot
            .take()
            .unwrap_or_else(|| RunSnapshot::new(event.run_id.clone()));
        let is_legal = check_transition(&before, &event).is_ok();
        let count = |snapshot: &RunSnapshot| {
            snapshot
                .inconsistencies
                .as_ref()
                .map_or(0, |found| found.count)
        };
        let (count_before, run_seq) = (count(&before), before.last_event_seq.next_seq());
        let is_same_run = before.run_id == event.run_id;
        let after = reduce_event(
            before,
            &RunEventRecord {
                event,
                run_seq,
                persisted_at: Timestamp::EPOCH,
            },
        );
        assert_eq!(is_same_run && !is_legal, count(&after) > count_before);
        assert!(
            after.last_event_seq == run_seq || (!is_same_run && after.last_event_seq < RunSeq::MAX)
        );
        snapshot = Some(after);
    }
    if let Some(snapshot) = snapshot {
        let text = serde_json::to_string(&snapshot).expect("a snapshot can be stored");
        assert_eq!(
            serde_json::from_str::<RunSnapshot>(&text).expect("a stored snapshot can be read"),
            snapshot
        );
    }
});
