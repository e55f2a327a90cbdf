-- Appends the first event of a run; stores nothing if the run exists. The parameters are those of
-- append_event.sql.
WITH head AS (
    INSERT INTO runs
    VALUES ($1::text, $6::text, $7::text, $8::text, $2::bigint,
        greatest($17::timestamptz, coalesce($19::timestamptz, clock_timestamp())), 0, 0, true, true)
    ON CONFLICT DO NOTHING
    RETURNING last_persisted_at
)
INSERT INTO run_events
SELECT $1::text, $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, $11::int,
    $12::int, $13::bytea, $14::text, $15::text, $16::text, last_persisted_at,
    $18::bigint # (extract(epoch FROM last_persisted_at) * 1000000)::bigint
FROM head
RETURNING persisted_at
