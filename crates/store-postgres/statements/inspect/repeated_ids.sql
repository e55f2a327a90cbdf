-- Event ids that several events have. As long as the constraint is there, there are none, and nothing is read.
SELECT format('event id %s is there %s times', event_id, count(*))
FROM run_events
WHERE NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conname = 'run_events_event_id_unique' AND convalidated AND connamespace = current_schema()::regnamespace
)
GROUP BY event_id
HAVING count(*) > 1
LIMIT 100
