//! Migration 2 renames the keys of stored campaign documents and the reasons of items, and drops
//! the table `timers`.

use onward_campaign_core::ItemReason;
use onward_store::tables::{CampaignRunRow, OutboxItemRow};
use onward_store::{Commit, RecordReader as _, Store as _, TableScan};
use onward_testing::{CAMPAIGN_DOCUMENT_MIGRATIONS, INSERT_ITEMS_OF_SCHEMA_1};

use crate::sample::campaign_run;
use crate::server::{Fixture, connect, fresh, open};

async fn insert_documents(fixture: &Fixture) {
    for (number, migration) in (0..).zip(CAMPAIGN_DOCUMENT_MIGRATIONS) {
        let row = CampaignRunRow {
            document: migration.before.into(),
            ..campaign_run(number)
        };
        let commit = Commit::new().insert(&row);
        fixture.store.commit(commit).await.unwrap();
    }
}

#[tokio::test]
async fn stored_campaigns_and_items_are_migrated_once() {
    let fixture = fresh().await;
    insert_documents(&fixture).await;
    let client = connect(&fixture.url).await;
    client
        .batch_execute(INSERT_ITEMS_OF_SCHEMA_1)
        .await
        .unwrap();
    // Brings the store back to schema 1.
    client
        .batch_execute(
            "DELETE FROM onward_migrations WHERE number >= 2; CREATE TABLE timers (promise BIGINT);
             DROP INDEX executions_by_state, executions_by_function, inbox_by_execution;
             ALTER TABLE tasks DROP COLUMN timeout_at; ALTER TABLE run_events DROP COLUMN checksum",
        )
        .await
        .unwrap();
    for _ in 0..2 {
        let store = open(&fixture.url).await;
        let rows: Vec<(CampaignRunRow, u64)> = store
            .list_records(TableScan::all_rows::<CampaignRunRow>())
            .await
            .unwrap();
        assert_eq!(rows.len(), CAMPAIGN_DOCUMENT_MIGRATIONS.len());
        for ((row, _), migration) in rows.iter().zip(CAMPAIGN_DOCUMENT_MIGRATIONS) {
            assert_eq!(&*row.document, migration.after);
        }
        let items: Vec<(OutboxItemRow, u64)> = store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await
            .unwrap();
        let reasons: Vec<_> = items.iter().filter_map(|(item, _)| item.reason).collect();
        let expected = [
            ItemReason::InvalidMessage,
            ItemReason::Refused,
            ItemReason::OperatorResolution,
        ];
        assert_eq!(reasons, expected);
    }
    let sql = "SELECT count(*) FROM pg_class WHERE relname = 'timers' OR relname LIKE 'onward_%campaign%'";
    let left: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}
