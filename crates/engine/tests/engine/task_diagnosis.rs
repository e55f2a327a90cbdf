//! Tasks in the reports of `why` and `doctor`.

use std::time::Duration;

use onward_api::finding::FindingCode as Found;
use onward_engine::explain;
use onward_store::tables::TaskRow;
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, TableScan};

use crate::code::json;
use crate::task_fixture::{Shop, either_way};

async fn a_workflow_that_waits_for_a_worker_is_explained_and_needs_no_memory(shop: Shop) {
    let id = shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let said = explain::explain_execution(&shop.client, id).await.unwrap();
    assert_eq!(
        said.waits.waits_for[0].target_name(),
        "charge by a worker, attempt 1 of 2"
    );
    let next = "it goes on when a worker has asked for charge and ended it; none has ever asked for such a task: \
                is the name right?";
    assert_eq!(said.next, [next]);
    shop.claim_one(5_000).await;
    let said = explain::explain_execution(&shop.client, id).await.unwrap();
    assert_eq!(
        said.waits.waits_for[0].target_name(),
        "charge by anna, attempt 1 of 2"
    );
    let next =
        "it goes on when worker anna ends charge; unless that one is heard of, it is lost in 5 s";
    assert_eq!(said.next, [next]);
    let (row, _): (onward_store::tables::ExecutionRow, u64) = shop
        .client
        .store()
        .read_record(RowKey(vec![id.to_value()]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&*row.state, row.wake_at),
        ("Blocked", onward_base::Timestamp::MAX)
    );
}

async fn tasks_that_are_missing_or_left_over_are_found(shop: Shop) {
    let id = shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let store = shop.client.store();
    let (task, version): (TaskRow, u64) = store
        .list_records(TableScan::all_rows::<TaskRow>())
        .await
        .unwrap()
        .remove(0);
    store
        .commit(Commit::new().delete(&task, version))
        .await
        .unwrap();
    assert_eq!(
        shop.findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskMissing]
    );
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(shop.findings().await, []);
    let held = shop.claim_one(5_000).await;
    shop.end(&held, Ok(json("1"))).await.unwrap();
    shop.outcome(id).await.unwrap();
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(
        shop.findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskOrphan]
    );
}

either_way! {
    a_workflow_that_waits_for_a_worker_is_explained_and_needs_no_memory
    tasks_that_are_missing_or_left_over_are_found
}
