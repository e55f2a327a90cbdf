-- Runs: whose they are and how far their readers have come. `run_no` stands for the run in the log, as the upper half of the
-- place of its events. How long the log is, is not written down here: the log says so itself.
CREATE TABLE runs (
    run_no         INTEGER PRIMARY KEY,
    run_id         TEXT    NOT NULL,
    tenant_id      TEXT    NOT NULL,
    project_id     TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    projected_seq  INTEGER NOT NULL,
    delivered_seq  INTEGER NOT NULL,
    to_project     INTEGER NOT NULL,
    to_deliver     INTEGER NOT NULL,
    CONSTRAINT runs_run_id_unique UNIQUE (run_id),
    CONSTRAINT runs_number_fits CHECK (run_no BETWEEN 1 AND 0x7fffffff)
) STRICT;

-- Whether a reader is behind changes far less often than the log: most appends do not touch `runs` at all.
CREATE INDEX runs_to_project ON runs (run_id) WHERE to_project;
CREATE INDEX runs_to_deliver ON runs (run_id) WHERE to_deliver;

-- The append-only log of runs. The place is the number of the run and, in the lower 32 bits, the sequence of the event: as
-- one integer it needs no index beside the table. The checksum covers all of an event but its place.
CREATE TABLE run_events (
    place              INTEGER PRIMARY KEY,
    event_id           BLOB    NOT NULL,
    event_type         TEXT    NOT NULL,
    emitted_at         TEXT    NOT NULL,
    plan_id            TEXT    NOT NULL,
    plan_version       TEXT    NOT NULL,
    engine_attempt_id  INTEGER NOT NULL,
    logical_attempt_id INTEGER NOT NULL,
    idempotency_key    BLOB    NOT NULL,
    step_id            TEXT,
    payload            TEXT,
    extra              TEXT,
    persisted_at       INTEGER NOT NULL,
    checksum           INTEGER NOT NULL,
    run_no             INTEGER NOT NULL AS (place >> 32),
    run_seq            INTEGER NOT NULL AS (place & 0xffffffff),
    CONSTRAINT run_events_idempotency_key_unique UNIQUE (run_no, idempotency_key)
) STRICT;

-- Which event ids are taken. Ids are random, so this tree is the one whose pages are all touched by a large commit; apart
-- from the events it can be filled in order, which costs half as much.
CREATE TABLE event_ids (
    event_id BLOB NOT NULL,
    CONSTRAINT event_ids_key PRIMARY KEY (event_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_events_are_never_updated BEFORE UPDATE ON run_events BEGIN
    SELECT RAISE(ABORT, 'run events are append-only: they are never updated');
END;
CREATE TRIGGER run_events_are_deleted_with_their_run BEFORE DELETE ON run_events
WHEN EXISTS (SELECT 1 FROM runs WHERE run_no = OLD.run_no) BEGIN
    SELECT RAISE(ABORT, 'run events are append-only: delete the whole run');
END;
CREATE TRIGGER runs_keep_their_name BEFORE UPDATE OF run_no, run_id, tenant_id, project_id, environment_id ON runs BEGIN
    SELECT RAISE(ABORT, 'a run keeps its name and its owner');
END;
CREATE TRIGGER runs_take_their_events_along AFTER DELETE ON runs BEGIN
    DELETE FROM event_ids WHERE event_id IN
        (SELECT event_id FROM run_events WHERE place BETWEEN OLD.run_no << 32 AND OLD.run_no << 32 | 0xffffffff);
    DELETE FROM run_events WHERE place BETWEEN OLD.run_no << 32 AND OLD.run_no << 32 | 0xffffffff;
END;

-- The same, readable.
CREATE VIEW run_log AS
SELECT runs.run_id, run_seq, lower(hex(event_id)) AS event_id, event_type, emitted_at, tenant_id, project_id, environment_id,
       plan_id, plan_version, engine_attempt_id, logical_attempt_id, lower(hex(idempotency_key)) AS idempotency_key, step_id,
       payload, extra, strftime('%Y-%m-%dT%H:%M:%fZ', persisted_at / 1000000.0, 'unixepoch') AS persisted_at
FROM run_events JOIN runs USING (run_no);

CREATE TABLE run_snapshots (
    run_id         TEXT    NOT NULL,
    last_event_seq INTEGER NOT NULL,
    condition      TEXT    NOT NULL,
    is_whole       INTEGER NOT NULL,
    holes          TEXT,
    snapshot       TEXT    NOT NULL,
    projected_at   INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    CONSTRAINT run_snapshots_key PRIMARY KEY (run_id),
    CONSTRAINT run_snapshots_condition_check CHECK (condition = 'CURRENT' OR condition = 'STALE' OR condition = 'INCONSISTENT')
) STRICT;
CREATE INDEX run_snapshots_by_wholeness ON run_snapshots (is_whole, run_id);

CREATE TABLE alerts (
    alert_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    code      TEXT    NOT NULL,
    severity  TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    occasion  TEXT    NOT NULL,
    message   TEXT    NOT NULL,
    raised_at INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    CONSTRAINT alerts_occasion_unique UNIQUE (code, subject, occasion)
) STRICT;
CREATE INDEX alerts_by_subject ON alerts (subject, alert_id);

-- Which number stands for an execution in the log of journals. Executions that run at the same time have numbers that are
-- near each other, so what is found by number is on few pages.
CREATE TABLE journals (
    journal_no   INTEGER PRIMARY KEY,
    execution_id BLOB    NOT NULL,
    CONSTRAINT journals_execution_id_unique UNIQUE (execution_id)
) STRICT;

-- Journals, as the engine appends them: several events a row, of all executions in the order in which they were written. The
-- appends of a commit share pages, whoever they belong to.
CREATE TABLE journal (
    place          INTEGER PRIMARY KEY,
    journal_no     INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    events         INTEGER NOT NULL,
    records        BLOB    NOT NULL
) STRICT;

-- Where the parts of each journal are. An entry at every append would be on a page of its own, and so would be half of what a
-- step writes: entries are made for 64 rows at a time, when the last of them is written.
CREATE TABLE journal_index (
    journal_no     INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    place          INTEGER NOT NULL,
    CONSTRAINT journal_index_key PRIMARY KEY (journal_no, first_sequence)
) STRICT, WITHOUT ROWID;

-- The same, with the rows that have no entry yet. Some of the last 64 may have one: a purge has taken what followed them.
CREATE VIEW journal_places AS
SELECT journal_no, first_sequence, place FROM journal_index
UNION ALL
SELECT journal_no, first_sequence, place FROM journal
WHERE place > (SELECT max(place) & -64 FROM journal) AND NOT EXISTS
    (SELECT 1 FROM journal_index AS its
     WHERE its.journal_no = journal.journal_no AND its.first_sequence = journal.first_sequence);

CREATE TRIGGER journal_is_never_updated BEFORE UPDATE ON journal BEGIN
    SELECT RAISE(ABORT, 'journals are append-only: they are never updated');
END;
CREATE TRIGGER journal_is_deleted_with_its_execution BEFORE DELETE ON journal
WHEN EXISTS (SELECT 1 FROM journals JOIN executions USING (execution_id) WHERE journal_no = OLD.journal_no) BEGIN
    SELECT RAISE(ABORT, 'journals are append-only: delete the whole execution');
END;
CREATE TRIGGER journals_keep_their_name BEFORE UPDATE ON journals BEGIN
    SELECT RAISE(ABORT, 'a journal keeps its name');
END;
CREATE TRIGGER journals_are_deleted_when_empty BEFORE DELETE ON journals
WHEN EXISTS (SELECT 1 FROM journal_places WHERE journal_no = OLD.journal_no) BEGIN
    SELECT RAISE(ABORT, 'a journal is deleted after its events');
END;
CREATE TRIGGER journal_takes_its_entry_along AFTER DELETE ON journal BEGIN
    DELETE FROM journal_index WHERE journal_no = OLD.journal_no AND first_sequence = OLD.first_sequence AND place = OLD.place;
END;
CREATE TRIGGER journal_index_is_never_updated BEFORE UPDATE ON journal_index BEGIN
    SELECT RAISE(ABORT, 'what is written stays where it is');
END;
CREATE TRIGGER journal_index_goes_with_what_it_points_at BEFORE DELETE ON journal_index
WHEN EXISTS (SELECT 1 FROM journal WHERE place = OLD.place) BEGIN
    SELECT RAISE(ABORT, 'a journal is found by its index: delete its events first');
END;

CREATE TABLE shards (
    shard       INTEGER NOT NULL,
    node        TEXT    NOT NULL,
    node_id     TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    CONSTRAINT shards_key PRIMARY KEY (shard)
) STRICT;

CREATE TABLE nodes (
    node_id    TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    address    TEXT,
    started_at INTEGER NOT NULL,
    seen_until INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    CONSTRAINT nodes_key PRIMARY KEY (node_id)
) STRICT;

CREATE TABLE components (
    component_digest BLOB    NOT NULL,
    code             BLOB    NOT NULL,
    functions        TEXT    NOT NULL,
    created_at       INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    CONSTRAINT components_key PRIMARY KEY (component_digest)
) STRICT;

CREATE TABLE functions (
    tenant_id        TEXT    NOT NULL,
    project_id       TEXT    NOT NULL,
    environment_id   TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    component_digest BLOB    NOT NULL,
    hosts            TEXT    NOT NULL,
    deployed_at      INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    CONSTRAINT functions_key PRIMARY KEY (tenant_id, project_id, environment_id, name),
    CONSTRAINT functions_kind_check CHECK (kind IN ('workflow', 'task'))
) STRICT;
CREATE INDEX functions_by_component ON functions (component_digest, tenant_id, project_id, environment_id, name);

CREATE TABLE executions (
    execution_id     BLOB    NOT NULL,
    tenant_id        TEXT    NOT NULL,
    project_id       TEXT    NOT NULL,
    environment_id   TEXT    NOT NULL,
    shard            INTEGER NOT NULL,
    function         TEXT    NOT NULL,
    component_digest BLOB    NOT NULL,
    start_key        TEXT,
    state            TEXT    NOT NULL,
    wake_at          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    body             BLOB    NOT NULL,
    version          INTEGER NOT NULL,
    CONSTRAINT executions_key PRIMARY KEY (execution_id)
) STRICT;
CREATE UNIQUE INDEX executions_start_key_unique
    ON executions (tenant_id, project_id, environment_id, function, start_key) WHERE start_key IS NOT NULL;
-- The others are over, or only a message wakes them.
CREATE INDEX executions_by_wake ON executions (shard, wake_at, execution_id) WHERE wake_at < 253402300799999999;
CREATE INDEX executions_by_age ON executions (tenant_id, project_id, environment_id, created_at, execution_id);

CREATE TABLE timers (
    execution_id BLOB    NOT NULL,
    promise      INTEGER NOT NULL,
    shard        INTEGER NOT NULL,
    fire_at      INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    CONSTRAINT timers_key PRIMARY KEY (execution_id, promise)
) STRICT, WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (shard, fire_at, execution_id, promise);

CREATE TABLE inbox (
    message_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    execution_id BLOB    NOT NULL,
    shard        INTEGER NOT NULL,
    dedup_key    TEXT,
    kind         TEXT    NOT NULL,
    body         BLOB    NOT NULL,
    sent_at      INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    CONSTRAINT inbox_dedup_key_unique UNIQUE (execution_id, dedup_key)
) STRICT;
CREATE INDEX inbox_by_shard ON inbox (shard, message_id);

-- Attempts that workers perform. Those that nobody has yet are found by their function, those whose worker is lost by their lease.
CREATE TABLE tasks (
    execution_id   BLOB    NOT NULL,
    promise        INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    tenant_id      TEXT    NOT NULL,
    project_id     TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    function       TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    queued_at      INTEGER NOT NULL,
    leased_until   INTEGER NOT NULL,
    lease_ms       INTEGER NOT NULL,
    worker         TEXT,
    claim          TEXT,
    input          TEXT    NOT NULL,
    delivery       TEXT    NOT NULL,
    timeout_ms     INTEGER,
    is_last        INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    CONSTRAINT tasks_key PRIMARY KEY (execution_id, promise, attempt),
    CONSTRAINT tasks_delivery_check CHECK (delivery IN ('at_least_once', 'at_most_once')),
    CONSTRAINT tasks_claim_check CHECK ((state = 'queued' AND claim IS NULL) OR (state = 'claimed' AND claim IS NOT NULL))
) STRICT;
CREATE INDEX tasks_by_function ON tasks (tenant_id, project_id, environment_id, function, state, queued_at, execution_id, promise, attempt);
CREATE INDEX tasks_by_lease ON tasks (leased_until, execution_id, promise, attempt);

CREATE TABLE worker_functions (
    tenant_id      TEXT    NOT NULL,
    project_id     TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    worker         TEXT    NOT NULL,
    asked_at       INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    CONSTRAINT worker_functions_key PRIMARY KEY (tenant_id, project_id, environment_id, name)
) STRICT;

-- Tokens are kept as their digests only.
CREATE TABLE tokens (
    token_hash     BLOB    NOT NULL,
    tenant_id      TEXT    NOT NULL,
    project_id     TEXT    NOT NULL,
    environment_id TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    role           TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    CONSTRAINT tokens_key PRIMARY KEY (token_hash),
    CONSTRAINT tokens_name_unique UNIQUE (tenant_id, project_id, environment_id, name),
    CONSTRAINT tokens_hash_check CHECK (length(token_hash) = 32),
    CONSTRAINT tokens_role_check CHECK (role IN ('viewer', 'operator', 'engineer', 'admin', 'worker'))
) STRICT;

CREATE TABLE campaign_runs (
    id            TEXT    NOT NULL,
    campaign_id   TEXT    NOT NULL,
    tenant_id     TEXT    NOT NULL,
    workspace_id  TEXT    NOT NULL,
    ordinal       INTEGER NOT NULL,
    channel       TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    control       TEXT    NOT NULL,
    document      TEXT    NOT NULL,
    audience_id   TEXT    NOT NULL,
    audience_digest TEXT  NOT NULL,
    items         INTEGER NOT NULL,
    jobs          INTEGER NOT NULL,
    scheduled_for INTEGER NOT NULL,
    asset         TEXT    NOT NULL,
    retry_of      TEXT,
    wake_at       INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    version       INTEGER NOT NULL,
    CONSTRAINT campaign_runs_key PRIMARY KEY (id),
    CONSTRAINT campaign_runs_ordinal_unique UNIQUE (tenant_id, workspace_id, campaign_id, ordinal),
    CONSTRAINT campaign_runs_channel_check CHECK (channel IN ('email', 'voice', 'social')),
    CONSTRAINT campaign_runs_status_check CHECK (status IN ('queued', 'running', 'completed', 'partial', 'failed')),
    CONSTRAINT campaign_runs_control_check CHECK (control IN ('active', 'paused', 'cancelled'))
) STRICT;
CREATE INDEX campaign_runs_by_campaign ON campaign_runs (campaign_id, created_at, id);
CREATE INDEX campaign_runs_by_ordinal ON campaign_runs (tenant_id, workspace_id, campaign_id, ordinal, id);
CREATE INDEX campaign_runs_by_age ON campaign_runs (tenant_id, workspace_id, created_at, id);
CREATE INDEX campaign_runs_by_wake ON campaign_runs (wake_at, id) WHERE wake_at < 253402300799999999;
CREATE INDEX campaign_runs_by_audience ON campaign_runs (audience_id, id);

-- Where rows are written all the time, words are compared one by one: for `IN` with more than two of them SQLite builds a table
-- whenever it checks a row, which takes as long as writing it.
CREATE TABLE job_queue (
    id           TEXT    NOT NULL,
    run_id       TEXT    NOT NULL,
    tenant_id    TEXT    NOT NULL,
    workspace_id TEXT    NOT NULL,
    job_type     TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    run_after    INTEGER NOT NULL,
    locked_until INTEGER,
    lock_token   TEXT,
    lock_epoch   INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    items        INTEGER NOT NULL,
    served       INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    skipped      INTEGER NOT NULL,
    in_doubt     INTEGER NOT NULL,
    doubt_since  INTEGER NOT NULL,
    error        TEXT,
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    CONSTRAINT job_queue_key PRIMARY KEY (id),
    CONSTRAINT job_queue_type_check CHECK (job_type = 'email_send_batch' OR job_type = 'voice_call_batch' OR job_type = 'social_post_batch'),
    CONSTRAINT job_queue_status_check CHECK (status = 'queued' OR status = 'locked' OR status = 'completed' OR status = 'failed' OR status = 'dead'),
    CONSTRAINT job_queue_lock_check
        CHECK ((status = 'locked') = (lock_token IS NOT NULL) AND (status = 'locked') = (locked_until IS NOT NULL))
) STRICT;
CREATE INDEX job_queue_by_turn ON job_queue (run_id, status, run_after, id);
CREATE INDEX job_queue_by_status ON job_queue (status, run_after, id);
CREATE INDEX job_queue_by_tenant ON job_queue (tenant_id, status, run_after, id);
CREATE INDEX job_queue_by_doubt ON job_queue (tenant_id, workspace_id, doubt_since, id) WHERE doubt_since < 253402300799999999;

CREATE TABLE channel_outbox (
    id                  TEXT    NOT NULL,
    run_id              TEXT    NOT NULL,
    job_id              TEXT    NOT NULL,
    tenant_id           TEXT    NOT NULL,
    workspace_id        TEXT    NOT NULL,
    channel             TEXT    NOT NULL,
    provider            TEXT    NOT NULL,
    recipient_id        TEXT    NOT NULL,
    recipient_address   TEXT    NOT NULL,
    idempotency_key     TEXT    NOT NULL,
    status              TEXT    NOT NULL,
    skipped             INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    held_since          INTEGER,
    doubt_since         INTEGER,
    provider_message_id TEXT,
    reason              TEXT,
    error               TEXT,
    payload             TEXT,
    created_at          INTEGER NOT NULL,
    settled_at          INTEGER,
    version             INTEGER NOT NULL,
    CONSTRAINT channel_outbox_key PRIMARY KEY (id),
    CONSTRAINT channel_outbox_idempotency_key_unique UNIQUE (tenant_id, workspace_id, idempotency_key),
    CONSTRAINT channel_outbox_channel_check CHECK (channel = 'email' OR channel = 'voice' OR channel = 'social'),
    CONSTRAINT channel_outbox_status_check CHECK (status = 'queued' OR status = 'sent' OR status = 'called' OR status = 'posted' OR status = 'failed' OR status = 'skipped'),
    CONSTRAINT channel_outbox_skipped_status_check CHECK (skipped = false OR status = 'skipped'),
    CONSTRAINT channel_outbox_doubt_check CHECK (doubt_since IS NULL OR status = 'queued'),
    CONSTRAINT channel_outbox_held_check CHECK (held_since IS NULL OR (status = 'queued' AND doubt_since IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_outbox_by_run ON channel_outbox (run_id, id);

CREATE TABLE campaign_audit_log (
    entry_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id       TEXT    NOT NULL,
    tenant_id    TEXT    NOT NULL,
    workspace_id TEXT    NOT NULL,
    event        TEXT    NOT NULL,
    detail       TEXT,
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL
) STRICT;
CREATE INDEX campaign_audit_log_by_run ON campaign_audit_log (run_id, entry_id);

CREATE TABLE campaign_audience (
    audience_id  TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    tenant_id    TEXT    NOT NULL,
    workspace_id TEXT    NOT NULL,
    items        INTEGER NOT NULL,
    recipients   BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    CONSTRAINT campaign_audience_key PRIMARY KEY (audience_id, number)
) STRICT;

CREATE TABLE suppressions (
    tenant_id    TEXT    NOT NULL,
    workspace_id TEXT    NOT NULL,
    channel      TEXT    NOT NULL,
    address      TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    CONSTRAINT suppressions_key PRIMARY KEY (tenant_id, workspace_id, channel, address),
    CONSTRAINT suppressions_channel_check CHECK (channel IN ('email', 'voice', 'social'))
) STRICT, WITHOUT ROWID;
