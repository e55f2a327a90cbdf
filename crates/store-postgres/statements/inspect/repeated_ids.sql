-- Event ids that several events have. While the constraint exists there are none, and no event is
-- read.
SELECT format('event id %s is stored %s times', event_id, count(*))
FROM run_events
WHERE NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conname = 'run_events_event_id_unique' AND convalidated AND connamespace = current_schema()::regnamespace
)
GROUP BY event_id
HAVING count(*) > 1
LIMIT 100
