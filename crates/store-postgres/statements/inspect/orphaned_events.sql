-- Events without a run.
SELECT format('event %s belongs to run %s, which does not exist', run_seq, run_id)
FROM run_events
WHERE NOT EXISTS (SELECT FROM runs WHERE runs.run_id = run_events.run_id)
LIMIT 100
