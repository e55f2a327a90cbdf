-- The chunks of a journal that contain events from $2 on. The first is the last chunk that starts
-- at or before $2.
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
