//! Migration 3 gives campaigns one encoding of their scope, and tasks the time of their timeout.

use onward_store::tables::{AudiencePartRow, SuppressionRow};
use onward_store::{RecordReader as _, TableScan};
use rusqlite::Connection;

use crate::Place;

/// Brings a store back to schema 2.
const REVERT_MIGRATION: &str = "
    DELETE FROM onward_migrations WHERE number = 3;
    DROP INDEX executions_by_state; DROP INDEX executions_by_function; DROP INDEX inbox_by_execution;
    ALTER TABLE tasks DROP COLUMN timeout_at;";

/// Rows of schema 2. Both `a/b/c` and `d/e/f` are ambiguous; tokens tell what the first is.
const ROWS_OF_SCHEMA_2: &str = "
    INSERT INTO suppressions VALUES ('t', 'shop/live', 'email', 'x', 'r', 1, 1), ('t', 'a/b/c', 'email', 'x', 'r', 1, 1),
        ('t', 'd/e/f', 'email', 'x', 'r', 1, 1);
    INSERT INTO tokens VALUES (zeroblob(32), 't', 'a', 'b/c', 'one', 'admin', 1, 1, 1),
        (randomblob(32), 't', 'd', 'e/f', 'two', 'admin', 1, 1, 1),
        (randomblob(32), 't', 'd/e', 'f', 'three', 'admin', 1, 1, 1),
        (randomblob(32), 'other', 'a/b', 'c', 'four', 'admin', 1, 1, 1);
    INSERT INTO campaign_audience VALUES ('t/shop/live/people', 0, 't', 'shop/live', 1, x'5b5d', 1, 1);
    INSERT INTO tasks (execution_id, promise, attempt, shard, tenant_id, project_id, environment_id, function, state,
        queued_at, leased_until, lease_ms, worker, claim, input, delivery, timeout_ms, is_last, version)
    VALUES (zeroblob(32), 1, 1, 1, 't', 'p', 'e', 'f', 'claimed', 1, 90000000, 30000, 'w', 'c', '1', 'at_least_once', 5000, 0, 1),
        (zeroblob(32), 2, 1, 1, 't', 'p', 'e', 'f', 'queued', 1, 253402300799999999, 0, NULL, NULL, '1', 'at_least_once', 5000, 0, 1);";

fn numbers(raw: &Connection, sql: &str) -> Vec<(i64, i64)> {
    let mut statement = raw.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn scopes_are_migrated_once_and_ambiguous_ones_stay_in_no_scope() {
    let place = Place::new();
    drop(place.open());
    place.raw().execute_batch(REVERT_MIGRATION).unwrap();
    place.raw().execute_batch(ROWS_OF_SCHEMA_2).unwrap();
    for _ in 0..2 {
        let store = place.open();
        let rows: Vec<(SuppressionRow, u64)> = store
            .list_records(TableScan::all_rows::<SuppressionRow>())
            .await
            .unwrap();
        let workspaces: Vec<&str> = rows.iter().map(|(row, _)| &*row.workspace_id).collect();
        assert_eq!(workspaces, ["a|b/c", "d/e/f", "shop|live"]);
        let parts: Vec<(AudiencePartRow, u64)> = store
            .list_records(TableScan::all_rows::<AudiencePartRow>())
            .await
            .unwrap();
        assert_eq!(&*parts[0].0.audience_id, "t|shop|live|people");
        assert_eq!(&*parts[0].0.workspace_id, "shop|live");
        assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
    }
    // The last heartbeat of the claimed task was at 60 s.
    let times = numbers(&place.raw(), "SELECT timeout_at, leased_until FROM tasks");
    let never = 253_402_300_799_999_999;
    assert_eq!(times, [(65_000_000, 65_000_000), (never, never)]);
}
