//! What is wrong with the tables as such: rows that belong to nothing, and guards that somebody has removed.

/// Each statement selects what must not be there, in words.
pub(crate) const CHECKS: &[&str] = &[
    "SELECT format('event %s belongs to run %s, which does not exist', run_seq, run_id) FROM run_events \
     WHERE NOT EXISTS (SELECT FROM runs WHERE runs.run_id = run_events.run_id) LIMIT 100",
    "SELECT format('run %s has no events', run_id) FROM runs \
     WHERE NOT EXISTS (SELECT FROM run_events WHERE run_events.run_id = runs.run_id) LIMIT 100",
    "SELECT format('there is a snapshot of run %s at event %s, and no such run', run_id, last_event_seq) \
     FROM run_snapshots WHERE NOT EXISTS (SELECT FROM runs WHERE runs.run_id = run_snapshots.run_id) LIMIT 100",
    "SELECT format('event id %s is there %s times', event_id, count(*)) FROM run_events \
     GROUP BY event_id HAVING count(*) > 1 LIMIT 100",
    "SELECT format('where the readers of run %s stand does not fit a log that ends at event %s', run_id, last_seq) \
     FROM runs WHERE projector_is_behind <> (projected_seq < last_seq) OR event_bus_is_behind <> (delivered_seq < last_seq) \
     OR projected_seq > last_seq OR delivered_seq > last_seq LIMIT 100",
    "SELECT format('trigger %s is gone or switched off', wanted.name) FROM unnest(ARRAY['run_events_stay', 'journal_stays', \
     'runs_stay', 'executions_stay', 'run_events_stay_with_their_run', 'journal_stays_with_its_execution', 'runs_go_whole']) \
     AS wanted(name) WHERE NOT EXISTS (SELECT FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid \
     WHERE tgname = wanted.name AND tgenabled IN ('O', 'A') AND relnamespace = current_schema()::regnamespace)",
    "SELECT format('constraint %s is gone or not valid', wanted.name) FROM unnest(ARRAY['run_events_pkey', \
     'run_events_idempotency_key_unique', 'run_events_event_id_unique', 'runs_pkey', 'run_snapshots_pkey', 'journal_pkey', \
     'executions_pkey']) AS wanted(name) WHERE NOT EXISTS (SELECT FROM pg_constraint JOIN pg_index ON indexrelid = conindid \
     WHERE conname = wanted.name AND convalidated AND indisvalid AND connamespace = current_schema()::regnamespace)",
];
