-- Inserts events, one array per column. The checksums are completed with the time.
INSERT INTO run_events
SELECT run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id, plan_version,
    engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at,
    checksum # (extract(epoch FROM persisted_at) * 1000000)::bigint
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::int[], $12::int[], $13::bytea[], $14::text[], $15::text[], $16::text[],
    $17::timestamptz[], $18::bigint[])
    AS given(run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id,
        plan_version, engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at,
        checksum)
