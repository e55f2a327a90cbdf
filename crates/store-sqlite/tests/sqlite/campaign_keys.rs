//! Migration 2 renames the keys of stored campaign documents and the reasons of items, and drops
//! the table `timers`.

use onward_campaign_core::ItemReason;
use onward_store::tables::{CampaignRunRow, OutboxItemRow};
use onward_store::{Commit, RecordReader as _, Store, TableScan};
use onward_testing::{CAMPAIGN_DOCUMENT_MIGRATIONS, INSERT_ITEMS_OF_SCHEMA_1};

use crate::Place;
use crate::groups::campaign_run;

async fn insert_documents(store: &dyn Store) {
    for (number, migration) in CAMPAIGN_DOCUMENT_MIGRATIONS.iter().enumerate() {
        let row = CampaignRunRow {
            document: migration.before.into(),
            ..campaign_run(number)
        };
        store.commit(Commit::new().insert(&row)).await.unwrap();
    }
}

/// Brings a store back to schema 1.
fn revert_migration(place: &Place) {
    place
        .raw()
        .execute_batch(
            "DELETE FROM onward_migrations WHERE number >= 2; CREATE TABLE timers (promise INTEGER) STRICT;
             DROP INDEX executions_by_state; DROP INDEX executions_by_function; DROP INDEX inbox_by_execution;
             ALTER TABLE tasks DROP COLUMN timeout_at",
        )
        .unwrap();
}

#[tokio::test]
async fn stored_campaigns_and_items_are_migrated_once() {
    let place = Place::new();
    insert_documents(&*place.open()).await;
    place.raw().execute_batch(INSERT_ITEMS_OF_SCHEMA_1).unwrap();
    revert_migration(&place);
    for _ in 0..2 {
        let store = place.open();
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
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'timers'";
    let tables: i64 = place.raw().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
}
