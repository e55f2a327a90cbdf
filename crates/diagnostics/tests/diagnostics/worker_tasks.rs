//! Tasks in the reports of `why` and `doctor`.

use std::time::Duration;

use onward_api::finding::FindingCode as Found;
use onward_diagnostics::explain;
use onward_journal::ExecutionState;
use onward_store::tables::TaskRow;
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, TableScan};

use crate::script_runtime::json;
use crate::task_fixture::{TaskFixture, with_either_access};

async fn a_wait_for_a_worker_is_explained_and_the_execution_leaves_memory(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let explained = explain::explain_execution(&fixture.client, id)
        .await
        .unwrap();
    assert_eq!(
        explained.waits.waits_for[0].target_name(),
        "charge by a worker, attempt 1 of 2"
    );
    let next = "it continues when a worker has claimed and completed charge; no worker has ever asked for tasks of \
                this function: check its name";
    assert_eq!(explained.next, [next]);
    fixture.claim_one(5_000).await;
    let explained = explain::explain_execution(&fixture.client, id)
        .await
        .unwrap();
    assert_eq!(
        explained.waits.waits_for[0].target_name(),
        "charge by anna, attempt 1 of 2"
    );
    let next = "it continues when worker anna completes charge; its lease expires in 5 s unless it sends a heartbeat";
    assert_eq!(explained.next, [next]);
    let (row, _): (onward_store::tables::ExecutionRow, u64) = fixture
        .client
        .store()
        .read_record(RowKey(vec![id.to_value()]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (row.state, row.wake_at),
        (ExecutionState::Blocked, onward_base::Timestamp::MAX)
    );
}

async fn missing_and_orphaned_tasks_are_found(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let store = fixture.client.store();
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
        fixture
            .findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskMissing]
    );
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(fixture.findings().await, []);
    let held = fixture.claim_one(5_000).await;
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    fixture.outcome(id).await.unwrap();
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(
        fixture
            .findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskOrphan]
    );
}

with_either_access! {
    a_wait_for_a_worker_is_explained_and_the_execution_leaves_memory
    missing_and_orphaned_tasks_are_found
}
