//! Checksum of a stored run event, equal in all adapters: it detects an event that was changed or
//! moved after it was written. It detects accidents: a program that writes to the database can
//! compute it as well.

use onward_base::Timestamp;
use onward_runs::{RunEventWrite, RunSeq};

/// Bit that no timestamp sets. It distinguishes checksums from those of schema 1 and 2 of SQLite,
/// which have 32 bits and do not cover the position.
const VERSION_MARK: i64 = 1 << 62;

/// Returns the checksum of an event, as it is stored: that of its content and position, combined
/// with the time at which it was stored.
pub fn event_checksum(event: &RunEventWrite, run_seq: RunSeq, persisted_at: Timestamp) -> i64 {
    content_checksum(event, run_seq) ^ persisted_at.as_micros()
}

/// Returns the checksum without the time. A database that assigns the time combines the two with
/// an exclusive or; the time is in microseconds since 1970.
pub fn content_checksum(event: &RunEventWrite, run_seq: RunSeq) -> i64 {
    let mut bytes = Vec::with_capacity(1_024);
    let mut text = |text: Option<&str>| {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
    };
    for required in [
        &*event.run_id,
        &*event.tenant_id,
        &*event.project_id,
        &*event.environment_id,
        &*event.event_type,
        event.emitted_at.as_str(),
        &*event.plan_id,
        &*event.plan_version,
    ] {
        text(Some(required));
    }
    text(event.step_id.as_deref());
    text(event.payload.as_ref().map(|payload| payload.as_str()));
    text(event.extra.as_json());
    bytes.extend_from_slice(event.event_id.as_bytes());
    bytes.extend_from_slice(event.idempotency_key.as_bytes());
    bytes.extend_from_slice(&event.engine_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&event.logical_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&run_seq.as_u64().to_le_bytes());
    VERSION_MARK | i64::from(crc32fast::hash(&bytes))
}

/// Returns whether a stored checksum has the present form, and not that of schema 1 and 2.
pub const fn covers_position(stored: i64) -> bool {
    stored < 0 || stored > u32::MAX as i64
}

#[cfg(test)]
mod tests {
    use onward_base::Timestamp;
    use onward_runs::{RunEventWrite, RunSeq};

    use super::{covers_position, event_checksum};

    fn event() -> RunEventWrite {
        RunEventWrite::from_json(
            r#"{"eventId":"b3b6c1a0-6d0e-4c5c-9a54-7b1d0a5f0c11","eventType":"RunStarted",
            "emittedAt":"2026-01-02T03:04:05Z","runId":"run-1","tenantId":"t","projectId":"p",
            "environmentId":"e","planId":"plan","planVersion":"1","engineAttemptId":1,
            "logicalAttemptId":1,"idempotencyKey":
            "0000000000000000000000000000000000000000000000000000000000000000"}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_checksum_depends_on_content_position_and_time() {
        let (event, seq) = (event(), RunSeq::ZERO.next_seq());
        let now = Timestamp::EPOCH.plus_ms(1_700_000_000_000);
        let stored = event_checksum(&event, seq, now);
        assert_eq!(stored, event_checksum(&event, seq, now));
        assert_ne!(stored, event_checksum(&event, seq.next_seq(), now));
        assert_ne!(stored, event_checksum(&event, seq, now.plus_ms(1)));
        let mut other = event;
        other.plan_version = "2".parse().unwrap();
        assert_ne!(stored, event_checksum(&other, seq, now));
    }

    #[test]
    fn checksums_differ_from_those_of_earlier_schemas_at_any_time() {
        for at in [Timestamp::MIN, Timestamp::EPOCH, Timestamp::MAX] {
            assert!(covers_position(event_checksum(&event(), RunSeq::ZERO, at)));
        }
        assert!(!covers_position(0));
        assert!(!covers_position(i64::from(u32::MAX)));
    }
}
