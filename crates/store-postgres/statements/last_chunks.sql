-- The first sequence of the last chunk of each of these journals, and the number of its events.
SELECT given.execution_id, last.first_sequence, last.events
FROM unnest($1::bytea[]) AS given(execution_id)
CROSS JOIN LATERAL (
    SELECT first_sequence, events
    FROM journal
    WHERE journal.execution_id = given.execution_id
    ORDER BY first_sequence DESC
    LIMIT 1
) AS last
