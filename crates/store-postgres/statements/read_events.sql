-- Events of a run after a sequence number, in sequence order.
SELECT run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id, plan_version,
    engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at,
    checksum
FROM run_events
WHERE run_id = $1 AND run_seq > $2
ORDER BY run_seq
LIMIT $3
