-- Inserts events, one array per column.
INSERT INTO run_events
SELECT *
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::int[], $12::int[], $13::bytea[], $14::text[], $15::text[], $16::text[], $17::timestamptz[])
