//! Migration 3 gives campaigns one encoding of their scope, and tasks the time of their timeout.

use crate::server::{connect, fresh, open};

/// Brings a store back to schema 2.
const REVERT_MIGRATION: &str = "
    DELETE FROM onward_migrations WHERE number = 3;
    DROP INDEX executions_by_state, executions_by_function, inbox_by_execution;
    ALTER TABLE tasks DROP COLUMN timeout_at; ALTER TABLE run_events DROP COLUMN checksum;";

/// Rows of schema 2. Both `a/b/c` and `d/e/f` are ambiguous; tokens tell what the first is.
const ROWS_OF_SCHEMA_2: &str = "
    INSERT INTO suppressions VALUES ('t', 'shop/live', 'email', 'x', 'r', now(), 1),
        ('t', 'a/b/c', 'email', 'x', 'r', now(), 1), ('t', 'd/e/f', 'email', 'x', 'r', now(), 1);
    INSERT INTO tokens VALUES (sha256('1'), 't', 'a', 'b/c', 'one', 'admin', now(), now(), 1),
        (sha256('2'), 't', 'd', 'e/f', 'two', 'admin', now(), now(), 1),
        (sha256('3'), 't', 'd/e', 'f', 'three', 'admin', now(), now(), 1),
        (sha256('4'), 'other', 'a/b', 'c', 'four', 'admin', now(), now(), 1);
    INSERT INTO campaign_audience VALUES ('t/shop/live/people', 0, 't', 'shop/live', 1, 'x', now(), 1);
    INSERT INTO tasks (execution_id, promise, attempt, shard, tenant_id, project_id, environment_id, function, state,
        queued_at, leased_until, lease_ms, worker, claim, input, delivery, timeout_ms, is_last, version)
    VALUES ('x', 1, 1, 1, 't', 'p', 'e', 'f', 'claimed', now(), '2026-01-01 00:01:30+00', 30000, 'w', 'c', '1',
        'at_least_once', 5000, false, 1);";

#[tokio::test]
async fn scopes_are_migrated_once_and_ambiguous_ones_stay_in_no_scope() {
    let fixture = fresh().await;
    let client = connect(&fixture.url).await;
    client.batch_execute(REVERT_MIGRATION).await.unwrap();
    client.batch_execute(ROWS_OF_SCHEMA_2).await.unwrap();
    for _ in 0..2 {
        drop(open(&fixture.url).await);
        for (sql, expected) in [
            (
                "SELECT string_agg(workspace_id, ' ' ORDER BY workspace_id COLLATE \"C\") FROM suppressions",
                "a|b/c d/e/f shop|live",
            ),
            (
                "SELECT audience_id || ' ' || workspace_id FROM campaign_audience",
                "t|shop|live|people shop|live",
            ),
            // The last heartbeat of the claimed task was at one minute.
            (
                "SELECT (timeout_at = leased_until AND timeout_at = '2026-01-01 00:01:05+00')::text FROM tasks",
                "true",
            ),
        ] {
            let found: String = client.query_one(sql, &[]).await.unwrap().get(0);
            assert_eq!(found, expected);
        }
    }
}
