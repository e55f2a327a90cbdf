-- Triggers that were removed or disabled.
SELECT format('trigger %s is missing or disabled', wanted.name)
FROM unnest(ARRAY[
    'run_events_stay', 'journal_stays', 'runs_stay', 'executions_stay', 'run_events_stay_with_their_run',
    'journal_stays_with_its_execution', 'runs_go_whole'
]) AS wanted(name)
WHERE NOT EXISTS (
    SELECT FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE tgname = wanted.name AND tgenabled IN ('O', 'A') AND relnamespace = current_schema()::regnamespace
)
