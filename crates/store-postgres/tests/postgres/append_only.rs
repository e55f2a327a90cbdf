//! Stored events and journals cannot be changed by any client: the database itself rejects the
//! change.

use onward_base::SharedText;
use onward_campaign_core::{DeliveryChannel, ItemStatus};
use onward_store::tables::{JobRow, OutboxItemRow};
use onward_store::{
    ColumnValue, Commit, Error, InvalidRequest, RowChange, RunEventQuery, RunStateStore as _,
    Store as _, TableRecord as _,
};
use tokio_postgres::error::SqlState;

use crate::sample::{append, campaign_run, event, execution, insert_with, job, run};
use crate::server::{Fixture, connect, fresh};

async fn filled() -> Fixture {
    let fixture = fresh().await;
    fixture
        .store
        .append_events(vec![event("a", 1), event("a", 2), event("b", 1)])
        .await
        .unwrap();
    let commit = Commit::new()
        .insert(&execution(1))
        .append_journal(append(1, 0))
        .append_journal(append(2, 0));
    fixture.store.commit(commit).await.unwrap();
    fixture
}

#[tokio::test]
async fn events_and_journals_are_never_updated_and_only_deleted_as_a_whole() {
    let fixture = filled().await;
    let client = connect(&fixture.url).await;
    for tampering in [
        "UPDATE run_events SET event_type = 'Other'",
        "UPDATE run_events SET run_seq = 7 WHERE run_id = 'a' AND run_seq = 1",
        "DELETE FROM run_events",
        "DELETE FROM run_events WHERE run_id = 'a' AND run_seq = 2",
        "TRUNCATE run_events",
        "TRUNCATE runs",
        "UPDATE runs SET run_id = 'c' WHERE run_id = 'a'",
        "UPDATE runs SET tenant_id = 'c' WHERE run_id = 'a'",
        "UPDATE journal SET records = ''",
        "DELETE FROM journal",
        "TRUNCATE journal",
        "TRUNCATE executions",
        "UPDATE executions SET execution_id = ''",
        "INSERT INTO run_events SELECT * FROM run_events ON CONFLICT (event_id) DO UPDATE SET payload = '{}'",
    ] {
        let refused = client.batch_execute(tampering).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Some(&SqlState::RESTRICT_VIOLATION),
            "{tampering}: {refused:?}"
        );
    }
    assert_eq!(
        fixture
            .store
            .fetch_events(&run("a"), RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn deleting_the_head_of_a_run_deletes_the_whole_run() {
    let fixture = filled().await;
    let client = connect(&fixture.url).await;
    assert_eq!(
        client
            .execute("DELETE FROM runs WHERE run_id = 'a'", &[])
            .await
            .unwrap(),
        1
    );
    assert!(
        fixture
            .store
            .fetch_events(&run("a"), RunEventQuery::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        fixture
            .store
            .fetch_events(&run("b"), RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        1
    );
    // The store has cached the head and must still append correctly.
    let again = fixture.store.append_event(event("a", 2)).await.unwrap();
    assert_eq!(
        (again.result.run_seq.as_u64(), again.result.persisted),
        (1, true)
    );
}

#[tokio::test]
async fn a_journal_cannot_be_deleted_before_its_execution() {
    let fixture = filled().await;
    let client = connect(&fixture.url).await;
    let one = "DELETE FROM journal WHERE execution_id = $1";
    let (kept, orphan) = ([1_u8; 32].as_slice(), [2_u8; 32].as_slice());
    assert!(client.execute(one, &[&kept]).await.is_err());
    assert_eq!(client.execute(one, &[&orphan]).await.unwrap(), 1);
    client
        .execute("DELETE FROM executions WHERE execution_id = $1", &[&kept])
        .await
        .unwrap();
    assert_eq!(client.execute(one, &[&kept]).await.unwrap(), 1);
}

fn item(status: ItemStatus) -> OutboxItemRow {
    let text = SharedText::from;
    OutboxItemRow {
        id: text("item"),
        run_id: text("run"),
        job_id: text("job"),
        tenant_id: text("tenant"),
        workspace_id: text("workspace"),
        channel: DeliveryChannel::Email,
        provider: text("provider"),
        recipient_id: text("recipient"),
        recipient_address: SharedText::from("ada@example.org"),
        idempotency_key: text("key"),
        status,
        skipped: status == ItemStatus::Skipped,
        sends: 1,
        reserved_since: None,
        in_doubt_since: None,
        provider_message_id: None,
        reason: None,
        error: None,
        payload: None,
        created_at: onward_base::Timestamp::EPOCH,
        settled_at: None,
    }
}

#[tokio::test]
async fn the_database_rejects_unknown_statuses() {
    let Fixture {
        store,
        cluster: _cluster,
        ..
    } = fresh().await;
    let campaign = campaign_run(1);
    let queued = item(ItemStatus::Queued);
    for (change, column) in [
        (insert_with(&queued, "status", "lost"), "status"),
        (
            RowChange::insert(&OutboxItemRow {
                skipped: true,
                ..item(ItemStatus::Sent)
            }),
            "skipped",
        ),
        (insert_with(&queued, "channel", "fax"), "channel"),
        (
            insert_with(&job("j", 0), "job_type", "fax_batch"),
            "job_type",
        ),
        (insert_with(&job("j", 0), "status", "partial"), "status"),
        (insert_with(&campaign, "channel", "fax"), "channel"),
        (insert_with(&campaign, "status", "dead"), "status"),
    ] {
        let table = change.table().name;
        let mut commit = Commit::new().insert(&job("neighbour", 0));
        commit.changes.push(change);
        let expected = InvalidRequest::Value {
            table,
            column,
            reason: "a check constraint of the database rejects the value",
        };
        assert_eq!(store.commit(commit).await, Err(Error::Invalid(expected)));
    }
    assert_eq!(
        store
            .read_row(
                JobRow::TABLE,
                onward_store::RowKey(vec![ColumnValue::Text(SharedText::from("neighbour"))])
            )
            .await,
        Ok(None)
    );
    store
        .commit(Commit::new().insert(&item(ItemStatus::Skipped)))
        .await
        .unwrap();
}
