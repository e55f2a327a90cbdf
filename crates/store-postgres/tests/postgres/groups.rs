//! Group commit: commits of one transaction do not affect each other.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{join, join3};
use futures_util::poll;
use onward_base::SharedText;
use onward_store::tables::{InboxMessageRow, JobRow};
use onward_store::{
    ChangeOutcome, ColumnValue, Commit, CommitConflict, Error, InvalidRequest, RecordReader as _,
    RowKey, RunEventQuery, RunStateStore as _, Store as _, StoreErrorKind, TableRecord as _,
    TableScan,
};
use onward_store_postgres::{Options, PostgresStore};
use onward_testing::PostgresCluster;
use tokio_postgres::Client;

use crate::sample::{append, event, insert_with, job, message, run};
use crate::server::{connect, unsynced_cluster, wait_for_lock};

/// A store whose only writer is blocked until [`BlockedWriter::release`]: commits made before that
/// form one group.
struct BlockedWriter {
    store: PostgresStore,
    url: String,
    holder: Client,
    _cluster: Arc<PostgresCluster>,
}

async fn block_writer() -> BlockedWriter {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    let store = PostgresStore::open(
        &url,
        Options {
            writers: 1,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    store
        .commit(Commit::new().insert(&job("held", 0)))
        .await
        .unwrap();
    let holder = connect(&url).await;
    holder
        .batch_execute("BEGIN; SELECT * FROM job_queue WHERE id = 'held' FOR UPDATE")
        .await
        .unwrap();
    BlockedWriter {
        store,
        url,
        holder,
        _cluster: cluster,
    }
}

impl BlockedWriter {
    async fn release(&self) {
        self.holder.batch_execute("COMMIT").await.unwrap();
    }
}

/// Commits `commits` in one group and returns their results.
async fn commit_in_one_group(
    busy: &BlockedWriter,
    commits: [Commit; 3],
) -> [Result<onward_store::CommitReceipt, Error>; 3] {
    let mut first = pin!(busy.store.commit(Commit::new().update(&job("held", 1), 1)));
    assert!(poll!(&mut first).is_pending());
    wait_for_lock(&busy.url).await;
    let [one, two, three] = commits;
    let mut all = pin!(join3(
        busy.store.commit(one),
        busy.store.commit(two),
        busy.store.commit(three)
    ));
    assert!(matches!(poll!(&mut all), Poll::Pending));
    busy.release().await;
    let (first, (one, two, three)) = join(first, all).await;
    first.unwrap();
    [one, two, three]
}

async fn attempts(busy: &BlockedWriter, id: &str) -> Option<(u32, u64)> {
    let stored: Option<(JobRow, u64)> = busy
        .store
        .read_record(RowKey(vec![ColumnValue::Text(SharedText::from(id))]))
        .await
        .unwrap();
    stored.map(|(job, version)| (job.attempts, version))
}

#[tokio::test]
async fn a_rejected_commit_does_not_affect_others_of_its_group() {
    let busy = block_writer().await;
    let refused = Commit::new()
        .insert(&job("b", 0))
        .append_journal(append(1, 7))
        .append_events(vec![event("r", 2)]);
    let good = |id: &str, step: usize| {
        Commit::new()
            .insert(&job(id, 0))
            .append_events(vec![event("r", step)])
    };
    let [one, two, three] = commit_in_one_group(&busy, [good("a", 1), refused, good("c", 3)]).await;
    assert_eq!(one.unwrap().events[0].result.run_seq.as_u64(), 1);
    assert_eq!(two.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert_eq!(three.unwrap().events[0].result.run_seq.as_u64(), 2);
    assert_eq!(attempts(&busy, "b").await, None);
    assert_eq!(
        busy.store
            .fetch_events(&run("r"), RunEventQuery::default())
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_commit_rejected_by_the_database_does_not_affect_others_of_its_group() {
    let busy = block_writer().await;
    let mut wrong = Commit::new();
    wrong
        .changes
        .push(insert_with(&job("b", 0), "status", "lost"));
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            Commit::new().insert(&job("a", 0)),
            wrong,
            Commit::new().insert(&job("c", 0)),
        ],
    )
    .await;
    one.unwrap();
    assert!(
        matches!(
            two,
            Err(Error::Invalid(InvalidRequest::Value {
                column: "status",
                ..
            }))
        ),
        "{two:?}"
    );
    three.unwrap();
    assert_eq!(attempts(&busy, "a").await, Some((0, 1)));
    assert_eq!(attempts(&busy, "c").await, Some((0, 1)));
}

#[tokio::test]
async fn a_rejected_first_event_creates_no_run() {
    let busy = block_writer().await;
    let refused = Commit::new()
        .append_events(vec![event("r", 1)])
        .append_journal(append(1, 7));
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            refused.clone(),
            refused,
            Commit::new().append_events(vec![event("s", 1)]),
        ],
    )
    .await;
    assert_eq!(
        (one.unwrap_err().kind(), two.unwrap_err().kind()),
        (StoreErrorKind::Conflict, StoreErrorKind::Conflict)
    );
    three.unwrap();
    assert_eq!(busy.store.read_run_head(&run("r")).await, Ok(None));
    assert_eq!(
        busy.store
            .list_run_heads(None, None, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_commit_sees_earlier_commits_of_its_group() {
    let busy = block_writer().await;
    let made = Commit::new()
        .insert(&job("a", 0))
        .append_journal(append(1, 0));
    let changed = Commit::new()
        .update(&job("a", 1), 1)
        .append_journal(append(1, 1));
    let [one, two, three] = commit_in_one_group(
        &busy,
        [made, changed, Commit::new().update(&job("a", 2), 1)],
    )
    .await;
    one.unwrap();
    two.unwrap();
    assert!(
        matches!(
            three,
            Err(Error::Conflict(CommitConflict::RowVersion {
                expected: 1,
                found: 2,
                ..
            }))
        ),
        "{three:?}"
    );
    assert_eq!(attempts(&busy, "a").await, Some((1, 2)));
}

#[tokio::test]
async fn a_row_inserted_and_deleted_in_a_group_is_not_stored() {
    let busy = block_writer().await;
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            Commit::new().insert(&job("a", 0)),
            Commit::new().delete(&job("a", 0), 1),
            Commit::new()
                .delete(&job("held", 1), 2)
                .insert(&job("b", 0)),
        ],
    )
    .await;
    one.and(two).and(three).unwrap();
    assert_eq!(attempts(&busy, "a").await, None);
    assert_eq!(attempts(&busy, "held").await, None);
    assert_eq!(attempts(&busy, "b").await, Some((0, 1)));
}

fn delete_if_exists(id: &str) -> Commit {
    Commit::new().delete_if_exists::<JobRow>(RowKey(vec![ColumnValue::Text(SharedText::from(id))]))
}

#[tokio::test]
async fn delete_if_exists_in_a_group_applies_after_an_insert_and_before_an_update() {
    let busy = block_writer().await;
    let late = Commit::new().update(&job("a", 1), 1);
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            Commit::new().insert(&job("a", 0)),
            delete_if_exists("a"),
            late,
        ],
    )
    .await;
    one.unwrap();
    assert_eq!(two.unwrap().changes, [ChangeOutcome::Applied]);
    assert!(
        matches!(
            three,
            Err(Error::Conflict(CommitConflict::RowVersion {
                expected: 1,
                found: 0,
                ..
            }))
        ),
        "{three:?}"
    );
    assert_eq!(attempts(&busy, "a").await, None);
}

#[tokio::test]
async fn delete_if_exists_deletes_a_row_that_its_group_has_updated() {
    let busy = block_writer().await;
    let update = |version| Commit::new().update(&job("held", 9), version);
    let [one, two, three] =
        commit_in_one_group(&busy, [update(2), delete_if_exists("held"), update(3)]).await;
    one.and(two).unwrap();
    assert!(
        matches!(
            three,
            Err(Error::Conflict(CommitConflict::RowVersion {
                expected: 3,
                found: 0,
                ..
            }))
        ),
        "{three:?}"
    );
    assert_eq!(attempts(&busy, "held").await, None);
}

#[tokio::test]
async fn a_row_deleted_in_a_group_can_be_inserted_again_in_the_group() {
    let busy = block_writer().await;
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            delete_if_exists("held"),
            Commit::new().insert(&job("held", 7)),
            delete_if_exists("absent"),
        ],
    )
    .await;
    one.and(two).and(three).unwrap();
    assert_eq!(attempts(&busy, "held").await, Some((7, 1)));
}

#[tokio::test]
async fn a_row_replaced_in_a_group_starts_at_version_1() {
    let busy = block_writer().await;
    let [one, two, three] = commit_in_one_group(
        &busy,
        [
            Commit::new().delete(&job("held", 0), 2),
            Commit::new().insert(&job("held", 7)),
            Commit::new().update(&job("held", 8), 1),
        ],
    )
    .await;
    one.and(two).and(three).unwrap();
    assert_eq!(attempts(&busy, "held").await, Some((8, 2)));
}

#[tokio::test]
async fn rows_with_serials_are_found_by_their_serials_within_a_group() {
    let busy = block_writer().await;
    let send = || Commit::new().insert_or_keep(&message(Some("once")));
    let [one, two, three] = commit_in_one_group(
        &busy,
        [send(), send(), Commit::new().insert(&message(None))],
    )
    .await;
    assert_eq!(one.unwrap().changes, [ChangeOutcome::Applied]);
    let stored = busy
        .store
        .scan_rows(TableScan::all_rows::<InboxMessageRow>())
        .await
        .unwrap();
    assert_eq!(
        two.unwrap().changes,
        [ChangeOutcome::Kept(stored[0].clone())]
    );
    three.unwrap();
    assert_eq!(stored.len(), 2);
    let number = |place: usize| {
        InboxMessageRow::from_row(&stored[place].row)
            .unwrap()
            .message_id
    };
    assert!(number(0) < number(1));
}

#[tokio::test]
async fn unique_values_can_move_between_rows_in_a_group() {
    let busy = block_writer().await;
    let send = || Commit::new().insert(&message(Some("once")));
    busy.store.commit(Commit::new()).await.unwrap();
    let [one, two, three] = commit_in_one_group(&busy, [send(), send(), Commit::new()]).await;
    one.unwrap();
    assert!(
        matches!(two, Err(Error::Conflict(CommitConflict::NotUnique { .. }))),
        "{two:?}"
    );
    three.unwrap();
}
