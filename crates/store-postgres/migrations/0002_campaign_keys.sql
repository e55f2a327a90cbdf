-- Timers are events of the journal; the wake-up time of an execution stands in its own row.
DROP TABLE timers;

-- Renames the keys of stored campaign documents, inline providers included. `new_key` NULL drops a key. Keys are written
-- in byte order and without spaces: equal campaigns have equal documents, and a deployment that is repeated compares them
-- as text.
CREATE FUNCTION onward_rename_keys(document JSONB, at_path TEXT) RETURNS TEXT LANGUAGE sql AS $$
    WITH renames (path, old_key, new_key) AS (VALUES
        ('$', 'job_items', 'job_size'),
        ('$.retries', 'calls', 'max_sends'),
        ('$.retries', 'attempts', 'max_attempts'),
        ('$.retries', 'first_ms', 'initial_backoff_ms'),
        ('$.retries', 'max_ms', 'max_backoff_ms'),
        ('$.schedule', 'zone', 'time_zone'),
        ('$.schedule', 'quiet', 'quiet_hours'),
        ('$.schedule.quiet', 'zone', 'time_zone'),
        ('$.schedule.quiet', 'zone_field', 'time_zone_field'),
        ('$.audience', 'bad_rows', 'invalid_rows'),
        ('$.provider.http', 'takes_keys_once', 'idempotent'),
        ('$.provider.http', 'answers', 'responses'),
        ('$.provider.http', 'look', 'status_lookup'),
        ('$.provider.http', 'limits', 'rate_limits'),
        ('$.provider.http', 'terms', 'policy'),
        ('$.provider.http.look', 'nothing', 'not_found'),
        ('$.provider.http.look', 'refused', 'rejected'),
        ('$.provider.http.answers', 'busy', 'throttled'),
        ('$.provider.http.answers', 'later', 'deferred'),
        ('$.provider.http.answers', 'refused', 'rejected'),
        ('$.provider.http.batch', 'max', 'max_items'),
        ('$.provider.http.batch', 'later', 'deferred'),
        ('$.provider.http.batch', 'refused', 'rejected'),
        ('$.provider.http.terms', 'looks_after_ms', 'lookup_after_ms'),
        ('$.provider.http.terms', 'calls_max', NULL),
        ('$.provider.http.terms', 'attempts_max', NULL),
        ('$.provider.smtp', 'connections', 'max_connections'),
        ('$.provider.smtp', 'idle_ms', 'idle_timeout_ms'),
        ('$.provider.smtp', 'limits', 'rate_limits'),
        ('$.provider.smtp', 'terms', 'policy'),
        ('$.provider.smtp.terms', 'looks_after_ms', 'lookup_after_ms'),
        ('$.provider.smtp.terms', 'calls_max', NULL),
        ('$.provider.smtp.terms', 'attempts_max', NULL),
        ('$.provider.folder', 'limits', 'rate_limits'),
        ('$.provider.folder', 'terms', 'policy'),
        ('$.provider.folder.terms', 'looks_after_ms', 'lookup_after_ms'),
        ('$.provider.folder.terms', 'calls_max', NULL),
        ('$.provider.folder.terms', 'attempts_max', NULL)
    )
    SELECT CASE jsonb_typeof(document)
        WHEN 'object' THEN (
            SELECT '{' || coalesce(string_agg(
                to_json(new_key)::text || ':' || onward_rename_keys(value, at_path || '.' || old_key),
                ',' ORDER BY new_key COLLATE "C"), '') || '}'
            FROM (
                SELECT key AS old_key, value, CASE WHEN renames.path IS NULL THEN key ELSE renames.new_key END AS new_key
                FROM jsonb_each(document) LEFT JOIN renames ON renames.path = at_path AND renames.old_key = key
            ) AS member
            WHERE new_key IS NOT NULL
        )
        WHEN 'array' THEN (
            SELECT '[' || coalesce(string_agg(onward_rename_keys(value, at_path || '[]'), ',' ORDER BY place), '') || ']'
            FROM jsonb_array_elements(document) WITH ORDINALITY AS element (value, place)
        )
        ELSE CASE WHEN at_path = '$.audience.bad_rows' AND document = '"refuse"' THEN '"reject"' ELSE document::text END
    END
$$;

-- JSONB cannot hold the character \u0000: a mark that the document does not contain stands for it meanwhile. A document
-- that is not JSON stays as it is: only its own run cannot be used. (Dollar quotes: a backslash in them is one on every
-- server.)
CREATE FUNCTION onward_migrate_campaign(document TEXT) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    nul CONSTANT TEXT := $nul$\u0000$nul$;
    mark CONSTANT TEXT := 'nul-' || md5(document);
    marked TEXT := document;
BEGIN
    IF strpos(document, nul) > 0 THEN
        marked := regexp_replace(document, $re$(?<!\\)((?:\\\\)*)\\u0000$re$, $to$\1$to$ || mark, 'g');
    END IF;
    RETURN replace(onward_rename_keys(marked::jsonb, '$'), mark, nul);
EXCEPTION WHEN data_exception THEN
    RETURN document;
END
$$;

UPDATE campaign_runs SET version = version + 1, document = onward_migrate_campaign(document);

DROP FUNCTION onward_migrate_campaign(TEXT);
DROP FUNCTION onward_rename_keys(JSONB, TEXT);

UPDATE channel_outbox SET version = version + 1,
    reason = CASE reason WHEN 'verdict' THEN 'operator_resolution' ELSE 'invalid_message' END
WHERE reason IN ('verdict', 'unfit');
