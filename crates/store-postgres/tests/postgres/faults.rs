//! Connections that are cut, servers that crash, and callers that go away.

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

use crate::proxy::{Cut, Proxy};
use crate::sample::{event, job, run};
use crate::server::{careless, connect, fresh, open, wait_for_lock};

const APPENDERS: usize = 6;
const EACH: usize = 50;
const COUNTERS: usize = 3;
const COUNT: u32 = 50;
const RUNS: [&str; 3] = ["a", "b", "c"];

/// Appends an event however long it takes.
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

/// Raises a counter however long it takes.
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

/// Appends to several runs and raises several counters, all at once. Returns what was acknowledged.
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

/// Everything that was acknowledged is there, where it was said to be, once.
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
async fn connections_that_are_cut_lose_nothing_and_repeat_nothing() {
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

/// Cuts all connections again and again, but only after some progress, or there would never be any.
async fn cut_connections(url: String, is_done: Arc<AtomicBool>) -> usize {
    const PROGRESS: &str = "SELECT (SELECT coalesce(sum(last_seq), 0) FROM runs)::bigint + \
        (SELECT coalesce(sum(attempts), 0) FROM job_queue)::bigint";
    const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND \
        pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let client = connect(&url).await;
    let (mut cuts, mut total) = (0, 0);
    while !is_done.load(Ordering::SeqCst) {
        let now: i64 = client.query_one(PROGRESS, &[]).await.unwrap().get(0);
        if now > total + 5 {
            client.query(CUT, &[]).await.unwrap();
            (total, cuts) = (now, cuts + 1);
        }
    }
    cuts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_loses_nothing_that_was_acknowledged() {
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
async fn every_store_call_has_a_deadline() {
    let cluster = careless();
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
    // Goes through the same writer, so what was dropped has come to its end before.
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

/// A server that crashes gives numbers of transactions again that it had given and not written
/// down.
#[tokio::test]
async fn a_transaction_that_was_lost_is_not_taken_for_another_of_its_number() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let url = cluster.create_database().unwrap();
    let wire = TcpProxy::forward_to(cluster.port()).unwrap();
    let wired = url.replace(
        &format!(":{}/", cluster.port()),
        &format!(":{}/", wire.port()),
    );
    let store = Arc::new(
        PostgresStore::open(&wired, Options::default())
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
    // It has read and decided, and has written nothing.
    let committing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(Commit::new().insert(&job("lost", 0))).await }
    });
    wait_for_lock(&url).await;
    let held = "SELECT max(backend_xid::text::bigint) FROM pg_stat_activity";
    let number: i64 = holder.query_one(held, &[]).await.unwrap().get(0);
    wire.set_refusing(true);
    cluster.stop_immediately().unwrap();
    cluster.restart_server().unwrap();
    let other = connect(&url).await;
    let next = "SELECT pg_current_xact_id()::text::bigint";
    let given: i64 = other.query_one(next, &[]).await.unwrap().get(0);
    assert!(given <= number, "{number} was not given again, but {given}");
    for _ in given..number {
        other.query_one(next, &[]).await.unwrap();
    }
    let fate = other
        .query_one("SELECT pg_xact_status($1::bigint::text::xid8)", &[&number])
        .await
        .unwrap();
    assert_eq!(fate.get::<_, &str>(0), "committed");
    wire.set_refusing(false);
    committing.await.unwrap().unwrap();
    let stored: Option<(JobRow, u64)> = store
        .read_record(RowKey(vec![ColumnValue::Text(SharedText::from("lost"))]))
        .await
        .unwrap();
    assert!(stored.is_some(), "it was acknowledged");
}

/// As the protocol has it, where a word of another statement begins alike.
const COMMIT: &str = "COMMIT\0";

/// What a store is told when its connection is cut at COMMIT, and what is stored in the end.
async fn cut_at_commit(cut: Cut) {
    let fixture = fresh().await;
    let proxy = Proxy::start(fixture.cluster.port()).await;
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
async fn a_commit_whose_end_was_not_heard_is_found_committed() {
    cut_at_commit(Cut::AfterPassingOn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_performed_again() {
    cut_at_commit(Cut::BeforePassingOn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_end_was_not_heard_is_known_by_its_key() {
    for cut in [Cut::AfterPassingOn, Cut::BeforePassingOn] {
        let fixture = fresh().await;
        let proxy = Proxy::start(fixture.cluster.port()).await;
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
            (3, cut == Cut::AfterPassingOn)
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
async fn an_outcome_that_cannot_be_found_out_is_said_to_be_unknown() {
    let fixture = fresh().await;
    let proxy = Proxy::start(fixture.cluster.port()).await;
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
    proxy.cut_next(COMMIT, Cut::AfterPassingOn);
    proxy.stay_closed_after_the_cut();
    let answer = store.commit(Commit::new().update(&job("j", 1), 1)).await;
    assert!(
        matches!(answer, Err(Error::OutcomeUnknown(_))),
        "{answer:?}"
    );
    let answer = store.commit(Commit::new().insert(&job("k", 0))).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
}
