-- Appends one event to a run; stores nothing if the head of the run is not the expected one. $1 to
-- $17 are the event's columns, with the timestamp of the previous event in place of its own; $18 is
-- its checksum without the time; $19 is the time, or null to use the time of the database.
WITH head AS (
    UPDATE runs
    SET last_seq = $2::bigint,
        last_persisted_at = greatest($17::timestamptz, coalesce($19::timestamptz, clock_timestamp())),
        projector_is_behind = true,
        event_bus_is_behind = true
    WHERE run_id = $1::text
        AND tenant_id = $6::text AND project_id = $7::text AND environment_id = $8::text
        AND last_seq = $2::bigint - 1 AND last_persisted_at = $17::timestamptz
    RETURNING last_persisted_at
)
INSERT INTO run_events
SELECT $1::text, $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, $11::int,
    $12::int, $13::bytea, $14::text, $15::text, $16::text, last_persisted_at,
    $18::bigint # (extract(epoch FROM last_persisted_at) * 1000000)::bigint
FROM head
RETURNING persisted_at
