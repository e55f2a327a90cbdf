-- The chunks of a journal that contain events from $2 on, at most $3, and not more than $4 bytes of
-- records unless the first chunk alone has more. The first is the last chunk that starts at or before
-- $2. The sizes are read without the records.
SELECT first_sequence, events, records
FROM (
    SELECT page.*, row_number() OVER in_order AS number, sum(octet_length(records)) OVER in_order AS bytes
    FROM (
        SELECT first_sequence, events, records
        FROM journal
        WHERE execution_id = $1
            AND first_sequence >= coalesce((
                SELECT first_sequence
                FROM journal
                WHERE execution_id = $1 AND first_sequence <= $2
                ORDER BY first_sequence DESC
                LIMIT 1
            ), 0)
            AND first_sequence + events > $2
        ORDER BY first_sequence
        LIMIT $3
    ) AS page
    WINDOW in_order AS (ORDER BY first_sequence)
) AS measured
WHERE number = 1 OR bytes <= $4
ORDER BY first_sequence
