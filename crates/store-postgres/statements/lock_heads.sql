-- The heads of the runs with these ids, locked in the order given.
SELECT found.*
FROM unnest($1::text[]) AS given(run_id)
CROSS JOIN LATERAL (
    SELECT held.run_id, held.tenant_id, held.project_id, held.environment_id, held.last_seq, held.last_persisted_at,
        held.projected_seq, held.delivered_seq
    FROM runs AS held
    WHERE held.run_id = given.run_id
    FOR UPDATE
) AS found
