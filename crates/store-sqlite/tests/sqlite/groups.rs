//! Group commit: commits of a group become durable together and fail independently.

use std::sync::Arc;

use onward_base::Timestamp;
use onward_campaign_core::{CampaignRunControl, CampaignRunStatus, DeliveryChannel};
use onward_store::tables::CampaignRunRow;
use onward_store::{
    ColumnValue, Commit, CommitConflict, Error, InvalidRequest, RecordReader as _, RowChange,
    RunStateStore as _, Store, TableRecord as _, TableRow, TableScan,
};
use onward_testing::RunEventGenerator;

use crate::Place;

pub(crate) fn campaign_run(id: usize) -> CampaignRunRow {
    CampaignRunRow {
        id: format!("run-{id:04}").into(),
        campaign_id: "spring".into(),
        tenant_id: "t".into(),
        workspace_id: "w".into(),
        ordinal: u32::try_from(id).unwrap(),
        channel: DeliveryChannel::Email,
        status: CampaignRunStatus::Queued,
        control: CampaignRunControl::Active,
        document: "{}".into(),
        audience_id: "all-customers".into(),
        audience_digest: "".into(),
        items: 1,
        jobs: 1,
        scheduled_for: Timestamp::EPOCH,
        asset: "spring".into(),
        retry_of: None,
        wake_at: Timestamp::EPOCH,
        created_at: Timestamp::EPOCH,
        ended_at: None,
    }
}

/// A commit of a campaign run with a status that the types cannot express and the database rejects.
pub(crate) fn insert_invalid_status(id: usize) -> Commit {
    let TableRow(mut values) = campaign_run(id).to_row();
    let status = CampaignRunRow::TABLE.column_position("status").unwrap();
    values[status] = ColumnValue::Text("launched".into());
    let mut commit = Commit::new();
    commit.changes.push(RowChange::Insert {
        table: CampaignRunRow::TABLE,
        row: TableRow(values),
    });
    commit
}

#[tokio::test]
async fn a_row_that_the_database_rejects_fails_alone() {
    let place = Place::new();
    let store = place.open();
    let mut waiting = tokio::task::JoinSet::new();
    for id in 0..200 {
        let store = Arc::clone(&store);
        let commit = if id % 7 == 3 {
            insert_invalid_status(id)
        } else {
            Commit::new().insert(&campaign_run(id))
        };
        waiting.spawn(async move { (id, store.commit(commit).await) });
    }
    while let Some(done) = waiting.join_next().await {
        let (id, outcome) = done.unwrap();
        match outcome {
            Ok(_) => assert_ne!(id % 7, 3),
            Err(Error::Invalid(InvalidRequest::RefusedByDatabase(words))) => {
                assert_eq!(id % 7, 3);
                assert!(words.contains("campaign_runs_status_check"), "{words}");
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }
    let rows: Vec<(CampaignRunRow, u64)> = store
        .list_records(TableScan::all_rows::<CampaignRunRow>())
        .await
        .unwrap();
    assert_eq!(rows.len(), (0..200).filter(|id| id % 7 != 3).count());
}

#[tokio::test]
async fn each_commit_of_a_group_with_conflicts_has_its_own_result() {
    let place = Place::new();
    let store = place.open();
    let events = RunEventGenerator::new("group").next_events(300);
    store.append_events(events[..100].to_vec()).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for (place, event) in events.iter().enumerate() {
        let (store, mut event) = (Arc::clone(&store), event.clone());
        if place >= 200 && place % 10 == 0 {
            event.event_id = events[0].event_id;
        }
        waiting.spawn(async move { (place, store.append_event(event).await) });
    }
    while let Some(done) = waiting.join_next().await {
        match done.unwrap() {
            (place, Ok(appended)) => assert_eq!(appended.result.idempotent, place < 100),
            (place, Err(Error::Conflict(CommitConflict::EventIdTaken { .. }))) => {
                assert_eq!(place % 10, 0)
            }
            (place, Err(error)) => panic!("{place}: {error}"),
        }
    }
    let head = store
        .read_run_head(&events[0].run_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(head.last_seq.as_u64(), 290);
}

#[tokio::test]
async fn delete_if_exists_in_a_group_applies_after_an_insert_and_before_an_update() {
    let place = Place::new();
    let store = place.open();
    let row = campaign_run(1);
    let key = CampaignRunRow::TABLE.key_of(&row.to_row());
    let remove = || Commit::new().delete_if_exists::<CampaignRunRow>(key.clone());
    let unhurried = |commit| {
        store.commit(Commit {
            is_background: true,
            ..commit
        })
    };
    // The calls are made in this order, without waiting for each other.
    let (inserted, updated, removed, late, again) = tokio::join!(
        biased;
        unhurried(Commit::new().insert(&row)),
        unhurried(Commit::new().update(&row, 1)),
        unhurried(remove()),
        unhurried(Commit::new().update(&row, 2)),
        unhurried(remove()),
    );
    inserted.and(updated).and(removed).and(again).unwrap();
    assert!(
        matches!(
            late,
            Err(Error::Conflict(CommitConflict::RowVersion {
                expected: 2,
                found: 0,
                ..
            }))
        ),
        "{late:?}"
    );
    assert_eq!(store.read_row(CampaignRunRow::TABLE, key).await, Ok(None));
}

#[tokio::test]
async fn a_commit_is_stored_even_if_its_caller_is_dropped() {
    let place = Place::new();
    let store: Arc<dyn Store> = place.open();
    let events = RunEventGenerator::new("dropped").next_events(50);
    for event in events.clone() {
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.append_event(event).await }
        });
        tokio::task::yield_now().await;
        waiting.abort();
    }
    let again = store.append_events(events).await.unwrap();
    assert_eq!(again.last().unwrap().result.run_seq.as_u64(), 50);
}
