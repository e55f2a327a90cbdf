-- Snapshots without a run.
SELECT format('there is a snapshot of run %s at event %s, and no such run', run_id, last_event_seq)
FROM run_snapshots
WHERE NOT EXISTS (SELECT FROM runs WHERE runs.run_id = run_snapshots.run_id)
LIMIT 100
