-- Constraints that were removed, or whose index is not valid.
SELECT format('constraint %s is missing or not valid', wanted.name)
FROM unnest(ARRAY[
    'run_events_pkey', 'run_events_idempotency_key_unique', 'run_events_event_id_unique', 'runs_pkey',
    'run_snapshots_pkey', 'journal_pkey', 'executions_pkey'
]) AS wanted(name)
WHERE NOT EXISTS (
    SELECT FROM pg_constraint JOIN pg_index ON indexrelid = conindid
    WHERE conname = wanted.name AND convalidated AND indisvalid AND connamespace = current_schema()::regnamespace
)
