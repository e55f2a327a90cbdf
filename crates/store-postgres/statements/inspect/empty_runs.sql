-- Runs without events.
SELECT format('run %s has no events', run_id)
FROM runs
WHERE NOT EXISTS (SELECT FROM run_events WHERE run_events.run_id = runs.run_id)
LIMIT 100
