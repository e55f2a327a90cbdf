-- The last chunk of a journal.
SELECT first_sequence, events, records
FROM journal
WHERE execution_id = $1
ORDER BY first_sequence DESC
LIMIT 1
