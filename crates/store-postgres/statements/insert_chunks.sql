-- Inserts chunks of journals, one array per column.
INSERT INTO journal (execution_id, first_sequence, events, records)
SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[])
