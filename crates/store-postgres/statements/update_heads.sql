-- Replaces the heads of locked runs, one array per column. Tenant, project and environment do not
-- change.
UPDATE runs AS old
SET last_seq = new.last_seq,
    last_persisted_at = new.last_persisted_at,
    projected_seq = new.projected_seq,
    delivered_seq = new.delivered_seq,
    projector_is_behind = new.projected_seq < new.last_seq,
    event_bus_is_behind = new.delivered_seq < new.last_seq
FROM (
    SELECT given.*, found.place
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::bigint[],
        $8::bigint[])
        AS given(run_id, tenant_id, project_id, environment_id, last_seq, last_persisted_at, projected_seq,
            delivered_seq)
    CROSS JOIN LATERAL (
        SELECT held.ctid AS place FROM runs AS held WHERE held.run_id = given.run_id OFFSET 0
    ) AS found
) AS new
WHERE old.ctid = new.place
