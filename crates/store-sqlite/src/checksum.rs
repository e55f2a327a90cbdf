//! Checksum of run events, which detects flipped bits anywhere in the stored event.

use onward_base::Timestamp;
use onward_runs::RunEventWrite;

/// Returns the CRC-32 of an event with its commit time. The sequence number is not included.
pub(crate) fn event_checksum(event: &RunEventWrite, persisted_at: Timestamp) -> u32 {
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
