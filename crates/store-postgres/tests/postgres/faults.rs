//! Lost connections, server crashes and dropped callers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::poll;
use onward_base::SharedText;
use onward_runs::{AppendResult, RunEventWrite};
use onward_store::tables::JobRow;
use onward_store::{
    ColumnValue, Commit, Error, RecordReader as _, RowKey, RunEventQuery, RunStateStore as _,
    Store as _, StoreErrorKind,
};
use onward_store_postgres::{Options, PostgresStore};
use onward_testing::{ClusterDurability, PostgresCluster, TcpProxy};
use tokio::task::JoinSet;

use crate::proxy::{ConnectionCut, CuttingProxy};
use crate::sample::{event, job, run};
use crate::server::{connect, fresh, open, unsynced_cluster, wait_for_lock};

const APPENDERS: usize = 6;
const EACH: usize = 50;
const COUNTERS: usize = 3;
const COUNT: u32 = 50;
const RUNS: [&str; 3] = ["a", "b", "c"];

/// Appends an event and retries until it is stored.
async fn persist(store: &PostgresStore, event: RunEventWrite) -> AppendResult {
    loop {
        match store.append_event(event.clone()).await {
            Ok(appended) => return appended.result,
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    StoreErrorKind::Retry | StoreErrorKind::Unknown
                ),
                "{error}"
            ),
        }
    }
}

/// Increments a counter and retries until it is stored.
async fn count_up(store: &PostgresStore, id: &str, times: u32) {
    let (mut known, mut is_in_doubt) = (0, false);
    while known < times {
        let stored: Option<(JobRow, u64)> = match store
            .read_record(RowKey(vec![ColumnValue::Text(SharedText::from(id))]))
            .await
        {
            Ok(stored) => stored,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Retry, "{error}");
                continue;
            }
        };
        let found = stored.as_ref().map_or(0, |(job, _)| job.attempts);
        assert!(
            found == known || (is_in_doubt && found == known + 1),
            "{found} is stored, {known} was acknowledged"
        );
        let commit = match stored {
            None => Commit::new().insert(&job(id, 1)),
            Some((_, version)) => Commit::new().update(&job(id, found + 1), version),
        };
        let answer = store.commit(commit).await.map_err(|error| error.kind());
        assert!(
            matches!(
                answer,
                Ok(_) | Err(StoreErrorKind::Retry | StoreErrorKind::Unknown)
            ),
            "{answer:?}"
        );
        is_in_doubt = answer == Err(StoreErrorKind::Unknown);
        known = found + u32::from(answer.is_ok());
    }
}

/// Appends to several runs and increments several counters concurrently. Returns the acknowledged
/// events.
async fn load(store: &Arc<PostgresStore>) -> Vec<AppendResult> {
    let (mut appends, mut counts) = (JoinSet::new(), JoinSet::new());
    for task in 0..APPENDERS {
        let store = Arc::clone(store);
        appends.spawn(async move {
            let mut answers = Vec::new();
            for step in 0..EACH {
                let event = event(RUNS[task % RUNS.len()], task * EACH + step);
                answers.push(persist(&store, event).await);
            }
            answers
        });
    }
    for task in 0..COUNTERS {
        let store = Arc::clone(store);
        counts.spawn(async move { count_up(&store, &format!("counter-{task}"), COUNT).await });
    }
    counts.join_all().await;
    appends.join_all().await.into_iter().flatten().collect()
}

/// Asserts that every acknowledged event is stored once, with its acknowledged sequence.
async fn audit(store: &PostgresStore, acknowledged: Vec<AppendResult>) {
    let mut stored = Vec::new();
    for name in RUNS {
        let events = store
            .fetch_events(&run(name), RunEventQuery::default())
            .await
            .unwrap();
        let places: Vec<u64> = events.iter().map(|event| event.run_seq.as_u64()).collect();
        assert_eq!(places, (1..=places.len() as u64).collect::<Vec<u64>>());
        stored.extend(
            events
                .iter()
                .map(|event| (event.event.event_id, event.run_seq, event.persisted_at)),
        );
    }
    let mut acknowledged: Vec<_> = acknowledged
        .iter()
        .map(|answer| (answer.event_id, answer.run_seq, answer.persisted_at))
        .collect();
    stored.sort_unstable();
    acknowledged.sort_unstable();
    assert_eq!(stored.len(), APPENDERS * EACH);
    assert_eq!(stored, acknowledged);
    for task in 0..COUNTERS {
        let key = RowKey(vec![ColumnValue::Text(SharedText::from(format!(
            "counter-{task}"
        )))]);
        let (counter, version): (JobRow, u64) = store.read_record(key).await.unwrap().unwrap();
        assert_eq!((counter.attempts, version), (COUNT, u64::from(COUNT)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_lose_and_duplicate_nothing() {
    let fixture = fresh().await;
    let store = Arc::new(fixture.store);
    let is_done = Arc::new(AtomicBool::new(false));
    let cutter = tokio::spawn(cut_connections(fixture.url.clone(), Arc::clone(&is_done)));
    let acknowledged = load(&store).await;
    is_done.store(true, Ordering::SeqCst);
    let cuts = cutter.await.unwrap();
    assert!(cuts > 10, "{cuts} cuts only");
    audit(&store, acknowledged).await;
}

/// Cuts all connections repeatedly, each time only after some progress.
async fn cut_connections(url: String, is_done: Arc<AtomicBool>) -> usize {
    const PROGRESS: &str = "SELECT (SELECT coalesce(sum(last_seq), 0) FROM runs)::bigint + \
        (SELECT coalesce(sum(attempts), 0) FROM job_queue)::bigint";
    const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND \
        pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let client = connect(&url).await;
    let (mut cuts, mut total) = (0, 0);
    while !is_done.load(Ordering::SeqCst) {
        let now: i64 = client.query_one(PROGRESS, &[]).await.unwrap().get(0);
        if now > total {
            client.query(CUT, &[]).await.unwrap();
            (total, cuts) = (now, cuts + 1);
        }
    }
    cuts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_crash_loses_no_acknowledged_commit() {
    let cluster = Arc::new(PostgresCluster::start().unwrap());
    let url = cluster.create_database().unwrap();
    let store = Arc::new(open(&url).await);
    let is_done = Arc::new(AtomicBool::new(false));
    let crashes = {
        let (cluster, is_done) = (Arc::clone(&cluster), Arc::clone(&is_done));
        tokio::task::spawn_blocking(move || {
            let mut crashes = 0;
            while !is_done.load(Ordering::SeqCst) && crashes < 5 {
                cluster.stop_immediately().unwrap();
                cluster.restart_server().unwrap();
                crashes += 1;
            }
            crashes
        })
    };
    let acknowledged = load(&store).await;
    is_done.store(true, Ordering::SeqCst);
    assert!(crashes.await.unwrap() > 0);
    audit(&store, acknowledged).await;
}

#[tokio::test]
async fn every_store_call_has_a_timeout() {
    let cluster = unsynced_cluster();
    let url = cluster.create_database().unwrap();
    let deadline = Duration::from_secs(3);
    let store = PostgresStore::open(
        &url,
        Options {
            call_timeout: deadline,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    store.append_event(event("r", 1)).await.unwrap();
    store
        .commit(Commit::new().insert(&job("held", 0)))
        .await
        .unwrap();
    let holder = connect(&url).await;
    holder
        .batch_execute("BEGIN; LOCK TABLE runs, job_queue IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    assert!(
        matches!(store.append_event(event("r", 2)).await, Err(error) if error.kind() == StoreErrorKind::Retry)
    );
    let update = Commit::new().update(&job("held", 1), 1);
    assert!(matches!(
        store.commit(update.clone()).await,
        Err(Error::Unavailable(_))
    ));
    assert!(matches!(
        store.read_run_head(&run("r")).await,
        Err(Error::Unavailable(_))
    ));
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(
        store
            .append_event(event("r", 2))
            .await
            .unwrap()
            .result
            .persisted
    );
    store.commit(update).await.unwrap();
}

#[tokio::test]
async fn a_dropped_future_leaves_no_open_transaction() {
    let fixture = fresh().await;
    fixture
        .store
        .commit(Commit::new().insert(&job("held", 0)))
        .await
        .unwrap();
    let holder = connect(&fixture.url).await;
    holder
        .batch_execute("BEGIN; SELECT * FROM job_queue WHERE id = 'held' FOR UPDATE")
        .await
        .unwrap();
    {
        let mut dropped = pin!(
            fixture
                .store
                .commit(Commit::new().update(&job("held", 1), 1))
        );
        assert!(poll!(&mut dropped).is_pending());
        wait_for_lock(&fixture.url).await;
    }
    holder.batch_execute("COMMIT").await.unwrap();
    // Uses the same writer, so the dropped commit has ended before.
    let next = fixture
        .store
        .commit(Commit::new().update(&job("held", 2), 2))
        .await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    assert_eq!(
        holder.query_one(open, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
    next.unwrap();
}

/// After a crash the server reuses transaction ids that it had assigned but not logged.
#[tokio::test]
async fn a_lost_transaction_is_not_confused_with_another_of_the_same_id() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let url = cluster.create_database().unwrap();
    let proxy = TcpProxy::forward_to(cluster.port()).unwrap();
    let proxied_url = url.replace(
        &format!(":{}/", cluster.port()),
        &format!(":{}/", proxy.port()),
    );
    let store = Arc::new(
        PostgresStore::open(&proxied_url, Options::default())
            .await
            .unwrap(),
    );
    store
        .commit(Commit::new().insert(&job("first", 0)))
        .await
        .unwrap();
    let holder = connect(&url).await;
    holder
        .batch_execute("BEGIN; LOCK TABLE job_queue IN SHARE MODE")
        .await
        .unwrap();
    // The commit has read and planned, but has not written anything.
    let committing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(Commit::new().insert(&job("lost", 0))).await }
    });
    wait_for_lock(&url).await;
    let held = "SELECT max(backend_xid::text::bigint) FROM pg_stat_activity";
    let number: i64 = holder.query_one(held, &[]).await.unwrap().get(0);
    proxy.refuse_connections();
    cluster.stop_immediately().unwrap();
    cluster.restart_server().unwrap();
    let other = connect(&url).await;
    let next = "SELECT pg_current_xact_id()::text::bigint";
    let given: i64 = other.query_one(next, &[]).await.unwrap().get(0);
    assert!(
        given <= number,
        "transaction id {number} was not reused, the next one is {given}"
    );
    for _ in given..number {
        other.query_one(next, &[]).await.unwrap();
    }
    let status = other
        .query_one("SELECT pg_xact_status($1::bigint::text::xid8)", &[&number])
        .await
        .unwrap();
    assert_eq!(status.get::<_, &str>(0), "committed");
    proxy.accept_connections();
    committing.await.unwrap().unwrap();
    let stored: Option<(JobRow, u64)> = store
        .read_record(RowKey(vec![ColumnValue::Text(SharedText::from("lost"))]))
        .await
        .unwrap();
    assert!(stored.is_some(), "the acknowledged commit is stored");
}

/// The statement as it is sent, including its end, so that no other statement matches.
const COMMIT: &str = "COMMIT\0";

/// Cuts the connection at COMMIT and asserts that the commit succeeds and is stored once.
async fn cut_at_commit(cut: ConnectionCut) {
    let fixture = fresh().await;
    let proxy = CuttingProxy::start(fixture.cluster.port()).await;
    let url = fixture.url.replace(
        &fixture.cluster.port().to_string(),
        &proxy.port().to_string(),
    );
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
        .commit(Commit::new().insert(&job("j", 0)))
        .await
        .unwrap();
    proxy.cut_next(COMMIT, cut);
    store
        .commit(Commit::new().update(&job("j", 1), 1))
        .await
        .unwrap();
    assert_eq!(proxy.cuts(), 1);
    let stored: Option<(JobRow, u64)> = fixture
        .store
        .read_record(RowKey(vec![ColumnValue::Text(SharedText::from("j"))]))
        .await
        .unwrap();
    assert_eq!(stored, Some((job("j", 1), 2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_lost_answer_is_found_committed() {
    cut_at_commit(ConnectionCut::AfterForwarding).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_retried() {
    cut_at_commit(ConnectionCut::BeforeForwarding).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_with_a_lost_answer_is_detected_by_its_key() {
    for cut in [
        ConnectionCut::AfterForwarding,
        ConnectionCut::BeforeForwarding,
    ] {
        let fixture = fresh().await;
        let proxy = CuttingProxy::start(fixture.cluster.port()).await;
        let url = fixture.url.replace(
            &fixture.cluster.port().to_string(),
            &proxy.port().to_string(),
        );
        let store = open(&url).await;
        store.append_events(vec![event("r", 1)]).await.unwrap();
        store.append_events(vec![event("r", 2)]).await.unwrap();
        proxy.cut_next("step-3", cut);
        let answer = store.append_event(event("r", 3)).await.unwrap().result;
        assert_eq!(
            (answer.run_seq.as_u64(), answer.idempotent),
            (3, cut == ConnectionCut::AfterForwarding)
        );
        assert_eq!(proxy.cuts(), 1);
        assert_eq!(
            fixture
                .store
                .fetch_events(&run("r"), RunEventQuery::default())
                .await
                .unwrap()
                .len(),
            3
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_cannot_be_determined_is_reported_as_unknown() {
    let fixture = fresh().await;
    let proxy = CuttingProxy::start(fixture.cluster.port()).await;
    let url = fixture.url.replace(
        &fixture.cluster.port().to_string(),
        &proxy.port().to_string(),
    );
    let deadline = Duration::from_secs(3);
    let store = PostgresStore::open(
        &url,
        Options {
            call_timeout: deadline,
            writers: 1,
            ..Options::default()
        },
    )
    .await
    .unwrap();
    store
        .commit(Commit::new().insert(&job("j", 0)))
        .await
        .unwrap();
    proxy.cut_next(COMMIT, ConnectionCut::AfterForwarding);
    proxy.refuse_connections_after_cut();
    let answer = store.commit(Commit::new().update(&job("j", 1), 1)).await;
    assert!(
        matches!(answer, Err(Error::OutcomeUnknown(_))),
        "{answer:?}"
    );
    let answer = store.commit(Commit::new().insert(&job("k", 0))).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
}
