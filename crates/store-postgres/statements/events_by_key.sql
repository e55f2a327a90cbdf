-- The events of these runs with these idempotency keys.
SELECT found.*
FROM unnest($1::text[], $2::bytea[]) AS given(run, key)
CROSS JOIN LATERAL (
    SELECT run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id,
        plan_version, engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at,
        checksum
    FROM run_events
    WHERE run_id = given.run AND idempotency_key = given.key
    OFFSET 0
) AS found
