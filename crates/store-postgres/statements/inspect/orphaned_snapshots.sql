-- Snapshots without a run.
SELECT format('a snapshot of run %s at event %s exists, but the run does not', run_id, last_event_seq)
FROM run_snapshots
WHERE NOT EXISTS (SELECT FROM runs WHERE runs.run_id = run_snapshots.run_id)
LIMIT 100
