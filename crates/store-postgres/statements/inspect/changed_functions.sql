-- Functions that differ from their definitions in the migrations. The digests are those of their
-- bodies.
SELECT format('function %s differs from its definition in the migrations', wanted.name)
FROM (VALUES
    ('onward_refuse', '156355694c8a680a452a5d328ae56154'),
    ('onward_keep_event', '249141de7b159f0dc50e49033faa8b2b'),
    ('onward_keep_journal', 'eff321d8f85271146b5af7cfc4652f63'),
    ('onward_remove_run', 'be54626cc3074a152f62251fc84c7b16'),
    ('onward_require', '5bd98677ce51395e0f9490b3fdf7c700')
) AS wanted(name, digest)
WHERE NOT EXISTS (
    SELECT FROM pg_proc
    WHERE proname = wanted.name AND md5(prosrc) = wanted.digest AND pronamespace = current_schema()::regnamespace
)
