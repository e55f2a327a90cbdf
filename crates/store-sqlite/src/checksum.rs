//! Checksums of stored run events. Those that were written under schema 1 and 2 are still checked
//! as they were.

use onward_base::Timestamp;
use onward_runs::{RunEventRecord, RunEventWrite};
use onward_store::event_checksum;

/// Returns the checksum that the row of an event must have, in the form of the one that it has.
pub(crate) fn expected_checksum(record: &RunEventRecord, stored: i64) -> i64 {
    let RunEventRecord {
        event,
        run_seq,
        persisted_at,
    } = record;
    if event_checksum::covers_position(stored) {
        event_checksum::event_checksum(event, *run_seq, *persisted_at)
    } else {
        checksum_of_schema_2(event, *persisted_at).into()
    }
}

/// Returns the CRC-32 of an event with its commit time. The sequence number is not included.
fn checksum_of_schema_2(event: &RunEventWrite, persisted_at: Timestamp) -> u32 {
    let mut bytes = Vec::with_capacity(1_024);
    let mut text = |text: Option<&str>| {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
    };
    [
        &*event.run_id,
        &*event.tenant_id,
        &*event.project_id,
        &*event.environment_id,
    ]
    .map(Some)
    .into_iter()
    .for_each(&mut text);
    [
        &*event.event_type,
        event.emitted_at.as_str(),
        &*event.plan_id,
        &*event.plan_version,
    ]
    .map(Some)
    .into_iter()
    .for_each(&mut text);
    [
        event.step_id.as_deref(),
        event.payload.as_ref().map(|it| it.as_str()),
        event.extra.as_json(),
    ]
    .into_iter()
    .for_each(&mut text);
    bytes.extend_from_slice(event.event_id.as_bytes());
    bytes.extend_from_slice(event.idempotency_key.as_bytes());
    bytes.extend_from_slice(&event.engine_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&event.logical_attempt_id.as_u32().to_le_bytes());
    bytes.extend_from_slice(&persisted_at.as_micros().to_le_bytes());
    crc32fast::hash(&bytes)
}
