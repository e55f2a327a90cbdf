//! Several processes on one database: no duplicates, no gaps, no deadlocks.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::poll;
use onward_base::SharedText;
use onward_runs::RunSeq;
use onward_store::tables::JobRow;
use onward_store::{
    ChangeOutcome, ColumnValue, Commit, Error, RecordReader as _, RowKey, RunEventQuery,
    RunStateStore as _, ShardId, Store as _, StoreErrorKind, TableRecord as _, shard_lease,
};
use onward_store_postgres::PostgresStore;
use onward_testing::PostgresCluster;
use tokio::task::JoinSet;

use crate::sample::{append, event, execution, job, run};
use crate::server::{connect, fresh, open, wait_for_lock};

/// Two handles on an empty store, as two processes would have, and their server.
async fn pair() -> ([Arc<PostgresStore>; 2], Arc<PostgresCluster>) {
    let fixture = fresh().await;
    let other = open(&fixture.url).await;
    ([Arc::new(fixture.store), Arc::new(other)], fixture.cluster)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_append_to_the_same_runs_without_gaps_or_duplicates() {
    const TASKS: usize = 8;
    const EACH: usize = 40;
    let (pair, _cluster) = pair().await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(&pair[task % 2]);
        tasks.spawn(async move {
            for step in 0..EACH {
                // Two runs at a time, in different orders, which would deadlock if locks were not
                // ordered.
                let step = task * EACH + step;
                let mut events = vec![event("a", step), event("b", step), event("c", step)];
                events.rotate_left(task % 3);
                let answers = store.append_events(events).await.unwrap();
                assert!(answers.iter().all(|answer| answer.result.persisted));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    for name in ["a", "b", "c"] {
        let events = pair[0]
            .fetch_events(&run(name), RunEventQuery::default())
            .await
            .unwrap();
        let places: Vec<u64> = events.iter().map(|event| event.run_seq.as_u64()).collect();
        assert_eq!(places, (1..=(TASKS * EACH) as u64).collect::<Vec<u64>>());
        let keys: BTreeSet<_> = events
            .iter()
            .map(|event| event.event.idempotency_key)
            .collect();
        assert_eq!(keys.len(), events.len());
        assert!(events.is_sorted_by_key(|event| event.persisted_at));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_of_one_first_event_store_it_once() {
    let (pair, _cluster) = pair().await;
    for round in 0..20 {
        let name = format!("run-{round}");
        let mut tasks = JoinSet::new();
        for task in 0..16 {
            let (store, event) = (Arc::clone(&pair[task % 2]), event(&name, 1));
            tasks.spawn(async move { store.append_event(event).await.unwrap().result });
        }
        let answers = tasks.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.persisted).count(), 1);
        assert!(
            answers
                .iter()
                .all(|answer| answer.idempotent != answer.persisted)
        );
        let known = answers
            .iter()
            .map(|answer| (answer.event_id, answer.run_seq, answer.persisted_at));
        assert_eq!(known.collect::<BTreeSet<_>>().len(), 1);
        assert_eq!(
            pair[0]
                .fetch_events(&run(&name), RunEventQuery::default())
                .await
                .unwrap()
                .len(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_appends_to_one_journal_position_exactly_one_succeeds() {
    let (pair, _cluster) = pair().await;
    pair[0]
        .commit(Commit::new().insert(&execution(1)))
        .await
        .unwrap();
    for place in 0..20 {
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let store = Arc::clone(&pair[task % 2]);
            tasks.spawn(async move {
                store
                    .commit(Commit::new().append_journal(append(1, place)))
                    .await
            });
        }
        let answers = tasks.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(
            refused
                .map(Error::kind)
                .all(|kind| kind == StoreErrorKind::Conflict)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_claims_of_a_shard_exactly_one_succeeds() {
    let (pair, _cluster) = pair().await;
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let store = Arc::clone(&pair[task % 2]);
            tasks.spawn(async move {
                shard_lease::claim_shard(&*store, ShardId(round), "node", 60_000)
                    .await
                    .unwrap()
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().flatten().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_an_event_before_earlier_events() {
    let (pair, _cluster) = pair().await;
    let is_done = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for task in 0..6 {
        let store = Arc::clone(&pair[task % 2]);
        writers.spawn(async move {
            for step in 0..60 {
                store
                    .append_event(event("r", task * 1_000 + step))
                    .await
                    .unwrap();
            }
        });
    }
    let reader = {
        let (store, is_done) = (Arc::clone(&pair[0]), Arc::clone(&is_done));
        tokio::spawn(async move {
            let (mut seen, mut reads) = (RunSeq::ZERO, 0);
            loop {
                // Reads the flag first, so that the last read sees everything.
                let was_done = is_done.load(Ordering::SeqCst);
                for event in store
                    .fetch_events(&run("r"), RunEventQuery::starting_after(seen))
                    .await
                    .unwrap()
                {
                    assert_eq!(event.run_seq, seen.next_seq());
                    seen = event.run_seq;
                }
                reads += 1;
                if was_done {
                    return (seen, reads);
                }
            }
        })
    };
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    is_done.store(true, Ordering::SeqCst);
    let (seen, reads) = reader.await.unwrap();
    assert_eq!(seen.as_u64(), 360);
    assert!(reads > 10, "the reader made only {reads} reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_concurrent_purge_and_append_leave_a_whole_journal_or_none() {
    let (pair, _cluster) = pair().await;
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let store = Arc::clone(&pair[task % 2]);
        tasks.spawn(async move {
            for _ in 0..50 {
                let chunks = store
                    .read_journal(execution(1).execution_id, 0, 1_000)
                    .await
                    .unwrap();
                let length = chunks.last().map_or(0, |chunk| chunk.first + 1);
                match store
                    .commit(Commit::new().append_journal(append(1, length)))
                    .await
                {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}"),
                }
                if length % 5 == 4 {
                    store
                        .purge(onward_store::PurgeTarget::Execution(
                            execution(1).execution_id,
                        ))
                        .await
                        .unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let chunks = pair[0]
        .read_journal(execution(1).execution_id, 0, 1_000)
        .await
        .unwrap();
    let places: Vec<u64> = chunks.iter().map(|chunk| chunk.first).collect();
    assert_eq!(places, (0..places.len() as u64).collect::<Vec<u64>>());
}

fn key(id: &str) -> RowKey {
    RowKey(vec![ColumnValue::Text(SharedText::from(id))])
}

/// Claims the job repeatedly until it is deleted. Returns the number of claims.
async fn claim(store: Arc<PostgresStore>) -> u32 {
    let mut claims = 0;
    while let Some((job, version)) = store.read_record::<JobRow>(key("j")).await.unwrap() {
        let claimed = JobRow {
            attempts: job.attempts + 1,
            ..job
        };
        match store.commit(Commit::new().update(&claimed, version)).await {
            Ok(_) => claims += 1,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}"),
        }
    }
    claims
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_if_exists_deletes_a_job_that_others_keep_claiming() {
    let (pair, _cluster) = pair().await;
    let mut claims = 0;
    for _ in 0..10 {
        pair[0]
            .commit(Commit::new().insert(&job("j", 0)))
            .await
            .unwrap();
        let mut claimers = JoinSet::new();
        for task in 0..4 {
            claimers.spawn(claim(Arc::clone(&pair[task % 2])));
        }
        while pair[0]
            .read_record::<JobRow>(key("j"))
            .await
            .unwrap()
            .is_some_and(|(_, version)| version < 5)
        {}
        assert_eq!(
            pair[0]
                .commit(Commit::new().delete_if_exists::<JobRow>(key("j")))
                .await
                .unwrap()
                .changes,
            [ChangeOutcome::Applied]
        );
        assert_eq!(pair[1].read_row(JobRow::TABLE, key("j")).await, Ok(None));
        claims += claimers.join_all().await.into_iter().sum::<u32>();
    }
    assert!(claims >= 40, "{claims}");
}

#[tokio::test]
async fn delete_if_exists_that_waited_for_an_update_deletes_the_updated_row() {
    let fixture = fresh().await;
    fixture
        .store
        .commit(Commit::new().insert(&job("j", 0)))
        .await
        .unwrap();
    let other = connect(&fixture.url).await;
    other
        .batch_execute("BEGIN; UPDATE job_queue SET attempts = 9, version = 2 WHERE id = 'j'")
        .await
        .unwrap();
    let mut removed = pin!(
        fixture
            .store
            .commit(Commit::new().delete_if_exists::<JobRow>(key("j")))
    );
    assert!(poll!(&mut removed).is_pending());
    wait_for_lock(&fixture.url).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(removed.await.unwrap().changes, [ChangeOutcome::Applied]);
    assert_eq!(
        fixture.store.read_row(JobRow::TABLE, key("j")).await,
        Ok(None)
    );
}

#[tokio::test]
async fn delete_if_exists_that_waited_deletes_a_row_inserted_in_between() {
    let fixture = fresh().await;
    fixture
        .store
        .commit(Commit::new().insert(&job("j", 0)))
        .await
        .unwrap();
    let other = connect(&fixture.url).await;
    let insert_another = "CREATE TEMPORARY TABLE copied AS SELECT * FROM job_queue; UPDATE copied SET id = 'a'; \
                          INSERT INTO job_queue SELECT * FROM copied";
    let update = "UPDATE job_queue SET version = 2 WHERE id = 'j'";
    other
        .batch_execute(&format!("BEGIN; {insert_another}; {update}"))
        .await
        .unwrap();
    let both = Commit::new()
        .delete_if_exists::<JobRow>(key("a"))
        .delete_if_exists::<JobRow>(key("j"));
    let mut removed = pin!(fixture.store.commit(both));
    assert!(poll!(&mut removed).is_pending());
    wait_for_lock(&fixture.url).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        removed.await.unwrap().changes,
        [ChangeOutcome::Applied, ChangeOutcome::Applied]
    );
    assert_eq!(
        fixture.store.read_row(JobRow::TABLE, key("j")).await,
        Ok(None)
    );
    assert_eq!(
        fixture.store.read_row(JobRow::TABLE, key("a")).await,
        Ok(None)
    );
}

#[tokio::test]
async fn an_update_that_waited_for_a_delete_conflicts() {
    let fixture = fresh().await;
    fixture
        .store
        .commit(Commit::new().insert(&job("j", 0)).insert(&job("z", 0)))
        .await
        .unwrap();
    let (other, rival) = (connect(&fixture.url).await, open(&fixture.url).await);
    other
        .batch_execute("BEGIN; SELECT * FROM job_queue WHERE id = 'z' FOR UPDATE")
        .await
        .unwrap();
    // The delete has locked the first row when it waits for the second.
    let both = Commit::new()
        .delete_if_exists::<JobRow>(key("j"))
        .delete_if_exists::<JobRow>(key("z"));
    let mut removed = pin!(fixture.store.commit(both));
    assert!(poll!(&mut removed).is_pending());
    wait_for_lock(&fixture.url).await;
    let mut updated = pin!(rival.commit(Commit::new().update(&job("j", 1), 1)));
    assert!(poll!(&mut updated).is_pending());
    other.batch_execute("COMMIT").await.unwrap();
    removed.await.unwrap();
    assert_eq!(updated.await.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert_eq!(
        fixture.store.read_row(JobRow::TABLE, key("j")).await,
        Ok(None)
    );
}
