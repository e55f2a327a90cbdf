-- Readers whose position is beyond the log, or whose flag contradicts their position.
SELECT format('the reader positions of run %s do not fit a log that ends at event %s', run_id, last_seq)
FROM runs
WHERE projector_is_behind <> (projected_seq < last_seq)
    OR event_bus_is_behind <> (delivered_seq < last_seq)
    OR projected_seq > last_seq
    OR delivered_seq > last_seq
LIMIT 100
