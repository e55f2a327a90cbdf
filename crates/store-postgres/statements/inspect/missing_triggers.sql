-- Triggers that were removed, disabled or replaced. The kinds are those of pg_trigger: 50 is before
-- an update or truncate, 11 before and 9 after the delete of a row.
SELECT format('trigger %s is missing or disabled', wanted.name)
FROM (VALUES
    ('run_events_stay', 'run_events', 'onward_refuse', 50),
    ('journal_stays', 'journal', 'onward_refuse', 50),
    ('runs_stay', 'runs', 'onward_refuse', 50),
    ('executions_stay', 'executions', 'onward_refuse', 50),
    ('run_events_stay_with_their_run', 'run_events', 'onward_keep_event', 11),
    ('journal_stays_with_its_execution', 'journal', 'onward_keep_journal', 11),
    ('runs_go_whole', 'runs', 'onward_remove_run', 9)
) AS wanted(name, on_table, function, kind)
WHERE NOT EXISTS (
    SELECT FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgname = wanted.name AND relname = wanted.on_table AND proname = wanted.function AND tgtype = wanted.kind
        AND tgqual IS NULL AND tgenabled IN ('O', 'A') AND relnamespace = current_schema()::regnamespace
        AND pronamespace = relnamespace
)
