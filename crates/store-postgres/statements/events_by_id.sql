-- The events with these ids.
SELECT found.*
FROM unnest($1::uuid[]) AS given(id)
CROSS JOIN LATERAL (
    SELECT run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id,
        plan_version, engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at,
        checksum
    FROM run_events
    WHERE event_id = given.id
    OFFSET 0
) AS found
