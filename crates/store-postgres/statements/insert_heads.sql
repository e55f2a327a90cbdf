-- Inserts heads of runs, one array per column.
INSERT INTO runs
SELECT given.*, given.projected_seq < given.last_seq, given.delivered_seq < given.last_seq
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::bigint[], $8::bigint[])
    AS given(run_id, tenant_id, project_id, environment_id, last_seq, last_persisted_at, projected_seq, delivered_seq)
