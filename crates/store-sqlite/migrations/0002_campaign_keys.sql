-- Timers are events of the journal; the wake-up time of an execution stands in its own row.
DROP TABLE timers;

-- Renames the keys of stored campaign documents, inline providers included. `new_key` NULL drops a key. Objects are
-- rebuilt from the inside out, with their keys in byte order: equal campaigns have equal documents, and a deployment that
-- is repeated compares them as text. A document that is not JSON stays as it is: only its own run cannot be used. So does
-- an object with keys that no campaign has.
UPDATE campaign_runs SET version = version + 1, document = (
    WITH RECURSIVE
    objects (step, path) AS (VALUES
        (1, '$.retries'),
        (2, '$.schedule.quiet'),
        (3, '$.schedule'),
        (4, '$.audience'),
        (5, '$.provider.http.look'),
        (6, '$.provider.http.answers'),
        (7, '$.provider.http.batch'),
        (8, '$.provider.http.terms'),
        (9, '$.provider.http'),
        (10, '$.provider.smtp.terms'),
        (11, '$.provider.smtp'),
        (12, '$.provider.folder.terms'),
        (13, '$.provider.folder'),
        (14, '$')
    ),
    renames (path, old_key, new_key) AS (VALUES
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
    ),
    migrated (step, document) AS (
        SELECT 0, campaign_runs.document
        UNION ALL
        SELECT objects.step, CASE
            WHEN json_type(migrated.document, objects.path) IS NOT 'object' OR EXISTS
                (SELECT 1 FROM json_each(migrated.document, objects.path) WHERE key GLOB '*[^a-z_]*')
            THEN migrated.document
            ELSE json_set(migrated.document, objects.path, json((
                SELECT json_group_object(new_key, json(CASE
                    WHEN old_key = 'bad_rows' AND value = 'refuse' THEN '"reject"'
                    ELSE migrated.document -> fullkey
                END) ORDER BY new_key)
                FROM (
                    SELECT key AS old_key, value, fullkey, CASE WHEN renames.path IS NULL THEN key ELSE new_key END AS new_key
                    FROM json_each(migrated.document, objects.path)
                    LEFT JOIN renames ON renames.path = objects.path AND renames.old_key = key
                )
                WHERE new_key IS NOT NULL
            )))
        END
        FROM migrated JOIN objects ON objects.step = migrated.step + 1
    )
    SELECT document FROM migrated ORDER BY step DESC LIMIT 1
)
WHERE json_valid(document);

UPDATE channel_outbox SET version = version + 1,
    reason = CASE reason WHEN 'verdict' THEN 'operator_resolution' ELSE 'invalid_message' END
WHERE reason IN ('verdict', 'unfit');
