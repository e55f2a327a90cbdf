-- Appends any number of events to any number of runs, or nothing if the head of one of the runs is
-- not the expected one. $1 to $17 are the events' columns, with the earliest possible timestamps, and
-- $18 their checksums without the time; $19 is the time, or null to use the time of the database; $20
-- to $26 are the existing runs and their expected heads; $27 to $31 are the new runs; $32 is the
-- number of runs.
WITH stamp AS MATERIALIZED (
    SELECT coalesce($19::timestamptz, clock_timestamp()) AS at
), continued AS (
    UPDATE runs AS old
    SET last_seq = new.last_seq,
        last_persisted_at = greatest(old.last_persisted_at, (SELECT at FROM stamp)),
        projector_is_behind = true,
        event_bus_is_behind = true
    FROM (
        SELECT given.last_seq, found.place
        FROM unnest($20::text[], $21::text[], $22::text[], $23::text[], $24::bigint[], $25::timestamptz[],
            $26::bigint[])
            AS given(run_id, tenant_id, project_id, environment_id, seq, at, last_seq)
        CROSS JOIN LATERAL (
            SELECT held.ctid AS place
            FROM runs AS held
            WHERE held.run_id = given.run_id
                AND held.tenant_id = given.tenant_id
                AND held.project_id = given.project_id
                AND held.environment_id = given.environment_id
                AND held.last_seq = given.seq
                AND held.last_persisted_at = given.at
            FOR UPDATE
        ) AS found
    ) AS new
    WHERE old.ctid = new.place
    RETURNING 1
), begun AS (
    INSERT INTO runs
    SELECT given.run_id, given.tenant_id, given.project_id, given.environment_id, given.last_seq, stamp.at, 0, 0, true,
        true
    FROM stamp
    CROSS JOIN unnest($27::text[], $28::text[], $29::text[], $30::text[], $31::bigint[])
        AS given(run_id, tenant_id, project_id, environment_id, last_seq)
    ON CONFLICT DO NOTHING
    RETURNING 1
), stored AS (
    INSERT INTO run_events
    SELECT given.run_id, given.run_seq, given.event_id, given.event_type, given.emitted_at, given.tenant_id,
        given.project_id, given.environment_id, given.plan_id, given.plan_version, given.engine_attempt_id,
        given.logical_attempt_id, given.idempotency_key, given.step_id, given.payload, given.extra,
        given.persisted_at, given.checksum # (extract(epoch FROM given.persisted_at) * 1000000)::bigint
    FROM (
        SELECT given.*, greatest(given.at, (SELECT at FROM stamp)) AS persisted_at
        FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::int[], $12::int[], $13::bytea[], $14::text[], $15::text[],
            $16::text[], $17::timestamptz[], $18::bigint[])
            AS given(run_id, run_seq, event_id, event_type, emitted_at, tenant_id, project_id, environment_id, plan_id,
                plan_version, engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, at,
                checksum)
    ) AS given
)
SELECT at
FROM stamp
WHERE onward_require((SELECT count(*) FROM continued) + (SELECT count(*) FROM begun), $32::bigint) > 0
