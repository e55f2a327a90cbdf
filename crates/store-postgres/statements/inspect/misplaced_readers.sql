-- Readers that stand where they cannot, or whose flag says otherwise.
SELECT format('where the readers of run %s stand does not fit a log that ends at event %s', run_id, last_seq)
FROM runs
WHERE projector_is_behind <> (projected_seq < last_seq)
    OR event_bus_is_behind <> (delivered_seq < last_seq)
    OR projected_seq > last_seq
    OR delivered_seq > last_seq
LIMIT 100
