-- Executions are listed by state, and by function and state. Listings of one function merge its
-- states.
CREATE INDEX executions_by_state ON executions (tenant_id, project_id, environment_id, state, created_at, execution_id);
CREATE INDEX executions_by_function ON executions (tenant_id, project_id, environment_id, function, state, created_at, execution_id);

-- Messages of an execution that it has not read are counted. The shard of a message that was read
-- is that of no execution.
CREATE INDEX inbox_by_execution ON inbox (execution_id, shard, message_id);

-- The timeout of a task begins when a worker claims it. When the tasks of this store were claimed
-- was not recorded: the last heartbeat stands for it.
ALTER TABLE tasks ADD COLUMN timeout_at INTEGER NOT NULL DEFAULT 253402300799999999;
UPDATE tasks SET timeout_at = leased_until - 1000 * lease_ms + 1000 * min(timeout_ms, 100000000000)
WHERE state = 'claimed' AND timeout_ms IS NOT NULL;
UPDATE tasks SET version = version + 1, leased_until = min(leased_until, timeout_at) WHERE state = 'claimed';

-- Until now a workspace was PROJECT/ENVIRONMENT, which is ambiguous if one of them contains a
-- slash. Now it is PROJECT|ENVIRONMENT. An ambiguous workspace is that of the only scope with a
-- token or a function that it can be; otherwise its rows stay as they are, in no scope.
CREATE TABLE workspace_renames AS
SELECT known.tenant_id, known.workspace_id AS old_id, CASE
    WHEN length(known.workspace_id) - length(replace(known.workspace_id, '/', '')) = 1
    THEN replace(known.workspace_id, '/', '|')
    ELSE (
        SELECT CASE WHEN count(*) = 1 THEN min(owner.project_id || '|' || owner.environment_id) END
        FROM (
            SELECT tenant_id, project_id, environment_id FROM tokens
            UNION SELECT tenant_id, project_id, environment_id FROM functions
        ) AS owner
        WHERE owner.tenant_id = known.tenant_id AND owner.project_id || '/' || owner.environment_id = known.workspace_id
    )
END AS new_id
FROM (
    SELECT tenant_id, workspace_id FROM campaign_runs
    UNION SELECT tenant_id, workspace_id FROM campaign_audience
    UNION SELECT tenant_id, workspace_id FROM suppressions
) AS known
WHERE instr(known.workspace_id, '/') > 0;
DELETE FROM workspace_renames WHERE new_id IS NULL;

-- Audiences: TENANT/WORKSPACE/NAME becomes TENANT|PROJECT|ENVIRONMENT|NAME.
UPDATE campaign_runs SET audience_id = renamed.tenant_id || '|' || new_id || '|'
    || substr(audience_id, length(renamed.tenant_id || old_id) + 3)
FROM workspace_renames AS renamed
WHERE campaign_runs.tenant_id = renamed.tenant_id AND workspace_id = old_id
    AND substr(audience_id, 1, length(renamed.tenant_id || old_id) + 2) = renamed.tenant_id || '/' || old_id || '/';
UPDATE campaign_audience SET audience_id = renamed.tenant_id || '|' || new_id || '|'
    || substr(audience_id, length(renamed.tenant_id || old_id) + 3)
FROM workspace_renames AS renamed
WHERE campaign_audience.tenant_id = renamed.tenant_id AND workspace_id = old_id
    AND substr(audience_id, 1, length(renamed.tenant_id || old_id) + 2) = renamed.tenant_id || '/' || old_id || '/';

UPDATE campaign_runs SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE campaign_runs.tenant_id = renamed.tenant_id AND workspace_id = old_id;
UPDATE job_queue SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE job_queue.tenant_id = renamed.tenant_id AND workspace_id = old_id;
UPDATE channel_outbox SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE channel_outbox.tenant_id = renamed.tenant_id AND workspace_id = old_id;
UPDATE campaign_audit_log SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE campaign_audit_log.tenant_id = renamed.tenant_id AND workspace_id = old_id;
UPDATE campaign_audience SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE campaign_audience.tenant_id = renamed.tenant_id AND workspace_id = old_id;
UPDATE suppressions SET version = version + 1, workspace_id = new_id FROM workspace_renames AS renamed
WHERE suppressions.tenant_id = renamed.tenant_id AND workspace_id = old_id;
DROP TABLE workspace_renames;
