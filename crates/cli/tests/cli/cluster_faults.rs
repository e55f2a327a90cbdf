//! Three nodes on one Postgres store under load, while nodes are killed, stopped, suspended and
//! disconnected, and the database is killed: each acknowledged execution ends once, with the
//! expected result.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use onward_api::client::{ApiClient as Http, ClientConfig};
use onward_api::execution::{
    CancelExecutionRequest, ExecutionResult, SignalExecutionRequest, StartExecutionRequest,
};
use onward_api::problem::{Code, Problem};
use onward_api::{OnwardApi as _, parse_json};
use onward_engine::client::{EngineClient, ExecutionFilter, ExecutionListOrder, is_execution_over};
use onward_store::tables::ShardLeaseRow;
use onward_store::{RecordReader as _, TableScan};
use onward_testing::{PostgresCluster, TcpProxy};
use tokio::time::{Instant, interval, timeout};

use crate::http_server::{Server, create_token};
use crate::workflow_kills::{
    APPROVED, CASES, CaseAction, POLL_INTERVAL, TIMEOUT, WorkflowCase, assert_doctor_ok,
    assert_journal_valid, client,
};
use crate::workflows::WorkflowStoreFixture;

/// Lease of a node.
const LEASE: Duration = Duration::from_secs(1);

/// Request timeout, after which a client tries another node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of concurrent clients.
const CLIENTS: usize = 6;

/// Number of rounds; each combines a kill with another fault.
const ROUNDS: usize = 4;

/// Maximum number of rounds, for a busy machine on which all takeovers were late so far.
const ROUNDS_MAX: usize = 5 * ROUNDS;

/// Minimum duration: ten seconds; `ONWARD_NODES_SECONDS` overrides it.
fn min_duration() -> Duration {
    let seconds = std::env::var("ONWARD_NODES_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

#[test]
fn three_nodes_on_one_postgres_lose_nothing_through_faults() {
    run_through_faults();
}

#[tokio::main]
async fn run_through_faults() {
    let mut cluster = FaultyCluster::start().await;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(run_client(Arc::clone(&cluster.shared), number)))
        .collect();
    let since = Instant::now();
    let mut round = 0;
    let needs_round = |round: usize, times: &TakeoverTimes| {
        round < ROUNDS || round < ROUNDS_MAX && !times.is_in_time()
    };
    while since.elapsed() < min_duration() || needs_round(round, &cluster.times) {
        cluster.kill(round % 3).await;
        match round % ROUNDS {
            0 => cluster.stop((round + 1) % 3).await,
            1 => cluster.pause((round + 1) % 3).await,
            2 => cluster.kill_postgres(),
            _ => cluster.disconnect().await,
        }
        round += 1;
    }
    cluster.shared.has_ended.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeSet::new();
    for client in clients {
        acknowledged.extend(client.await.unwrap());
    }
    cluster.wait_for_balance().await;
    println!(
        "{round} rounds, {} executions; {}",
        acknowledged.len(),
        cluster.times
    );
    cluster.times.assert_in_time();
    cluster.assert_all_ended(&acknowledged).await;
}

/// State shared by the concurrent clients.
struct SharedNodes {
    nodes: RwLock<Vec<Http>>,
    has_ended: AtomicBool,
}

struct FaultyCluster {
    fixture: WorkflowStoreFixture,
    postgres: Arc<PostgresCluster>,
    /// Proxy between the first node and the database.
    proxy: TcpProxy,
    token: String,
    nodes: Vec<Server>,
    names: Vec<String>,
    started: usize,
    shared: Arc<SharedNodes>,
    client: EngineClient,
    times: TakeoverTimes,
}

/// Time of each takeover of all shards of a node.
#[derive(Default)]
struct TakeoverTimes {
    killed: Vec<Duration>,
    stopped: Vec<Duration>,
}

impl TakeoverTimes {
    /// Asserts that at least one takeover of each kind was in time; a busy machine delays some.
    fn assert_in_time(&self) {
        assert!(
            self.is_in_time_after_kills(),
            "takeover after a kill within the lease: {:?}",
            self.killed
        );
        assert!(
            self.is_in_time_after_stops(),
            "takeover after a graceful stop sooner than the lease: {:?}",
            self.stopped
        );
    }

    fn is_in_time(&self) -> bool {
        self.is_in_time_after_kills() && self.is_in_time_after_stops()
    }

    fn is_in_time_after_kills(&self) -> bool {
        self.killed
            .iter()
            .any(|took| *took <= LEASE + Duration::from_millis(100))
    }

    fn is_in_time_after_stops(&self) -> bool {
        self.stopped.iter().any(|took| *took < LEASE)
    }
}

impl std::fmt::Display for TakeoverTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        let least = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
        let range = |times: &[Duration]| format!("{:?} to {:?}", least(times), most(times));
        let (killed, stopped) = (range(&self.killed), range(&self.stopped));
        write!(
            f,
            "shards of killed nodes were taken over after {killed}, of stopped ones after {stopped}"
        )
    }
}

impl FaultyCluster {
    async fn start() -> Self {
        let postgres = Arc::new(PostgresCluster::start().unwrap());
        let fixture = WorkflowStoreFixture::on_cluster(Arc::clone(&postgres));
        let token = create_token(&fixture, "admin", &[]);
        let shared = Arc::new(SharedNodes {
            nodes: RwLock::default(),
            has_ended: AtomicBool::new(false),
        });
        let mut cluster = Self {
            client: client(&fixture).await,
            proxy: TcpProxy::forward_to(postgres.port()).unwrap(),
            fixture,
            postgres,
            token,
            nodes: Vec::new(),
            names: vec![String::new(); 3],
            started: 0,
            shared,
            times: TakeoverTimes::default(),
        };
        for slot in 0..3 {
            let node = cluster.start_node(slot);
            cluster.nodes.push(node);
        }
        cluster
    }

    /// Starts a node with a new name.
    fn start_node(&mut self, slot: usize) -> Server {
        self.started += 1;
        let name = format!("node {}", self.started);
        let port = |port: u16| format!(":{port}/");
        let url = match slot {
            0 => self
                .fixture
                .url
                .replace(&port(self.postgres.port()), &port(self.proxy.port())),
            _ => self.fixture.url.clone(),
        };
        let lease = LEASE.as_millis().to_string();
        let args = [
            "--store",
            &url,
            "--node-name",
            &name,
            "--lease-ms",
            &lease,
            "--drain-timeout-ms",
            "5000",
        ];
        let node = Server::start(&self.fixture, &args);
        let access = ClientConfig {
            url: node.url(),
            token: Some(self.token.clone()),
            scope: None,
        };
        let http = Http::new(&access).unwrap();
        let mut nodes = self.shared.nodes.write().unwrap();
        if slot < nodes.len() {
            nodes[slot] = http;
        } else {
            nodes.push(http);
        }
        drop(nodes);
        self.names[slot] = name;
        node
    }

    async fn leases(&self) -> Vec<ShardLeaseRow> {
        let rows: Vec<(ShardLeaseRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        rows.into_iter().map(|(lease, _)| lease).collect()
    }

    /// Waits until other nodes own all shards of this one.
    async fn wait_for_takeover(&self, slot: usize) -> Duration {
        let since = Instant::now();
        let mut polls = interval(POLL_INTERVAL);
        while self
            .leases()
            .await
            .iter()
            .any(|lease| *lease.node == *self.names[slot])
        {
            assert!(
                since.elapsed() < TIMEOUT,
                "no takeover: {:?}",
                self.leases().await
            );
            polls.tick().await;
        }
        since.elapsed()
    }

    async fn kill(&mut self, slot: usize) {
        self.nodes[slot].child.kill().unwrap();
        self.nodes[slot].child.wait().unwrap();
        let took = self.wait_for_takeover(slot).await;
        self.times.killed.push(took);
        self.nodes[slot] = self.start_node(slot);
    }

    async fn stop(&mut self, slot: usize) {
        self.nodes[slot].signal("TERM");
        let took = self.wait_for_takeover(slot).await;
        self.times.stopped.push(took);
        assert_eq!(
            self.nodes[slot].child.wait().unwrap().code(),
            Some(0),
            "graceful shutdown"
        );
        self.nodes[slot] = self.start_node(slot);
    }

    /// Suspends a node until others own its shards, and lets it continue.
    async fn pause(&self, slot: usize) {
        self.nodes[slot].signal("STOP");
        self.wait_for_takeover(slot).await;
        self.nodes[slot].signal("CONT");
    }

    fn kill_postgres(&self) {
        self.postgres.stop_immediately().unwrap();
        self.postgres.restart_server().unwrap();
    }

    /// Closes the database connections of a node, once it has any.
    async fn disconnect(&self) {
        let mut polls = interval(POLL_INTERVAL);
        let cut = async {
            while self.proxy.cut_connections() == 0 {
                polls.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), cut)
            .await
            .expect("the node uses the proxy");
    }

    /// Waits until the metrics of the nodes show an even distribution of shards.
    async fn wait_for_balance(&self) {
        let since = Instant::now();
        let mut polls = interval(POLL_INTERVAL * 10);
        loop {
            let counts: Vec<usize> = self.nodes.iter().map(owned_shards).collect();
            let is_even =
                counts.iter().sum::<usize>() == 8 && counts.iter().all(|count| *count >= 2);
            if is_even
                && self
                    .nodes
                    .iter()
                    .all(|node| metrics(node).contains("onward_nodes_alive 3\n"))
            {
                return;
            }
            assert!(since.elapsed() < TIMEOUT, "{counts:?}");
            polls.tick().await;
        }
    }

    /// Asserts that exactly the acknowledged executions exist and have ended.
    async fn assert_all_ended(mut self, acknowledged: &BTreeSet<String>) {
        for node in &mut self.nodes {
            node.signal("TERM");
            assert_eq!(node.child.wait().unwrap().code(), Some(0));
        }
        let now = self.client.store().now().await.unwrap();
        assert!(
            self.leases()
                .await
                .iter()
                .all(|lease| lease.lease_until <= now),
            "all shards were released"
        );
        let (mut after, mut found) = (None, BTreeSet::new());
        loop {
            let rows = self
                .client
                .list_executions(
                    &ExecutionFilter::default(),
                    ExecutionListOrder::OldestFirst,
                    after,
                    500,
                )
                .await
                .unwrap();
            let Some(last) = rows.last() else { break };
            after = Some((last.created_at, last.execution_id));
            for row in rows {
                assert!(is_execution_over(&row), "{row:?}");
                assert_journal_valid(
                    row.execution_id,
                    &self.client.read_journal(row.execution_id).await.unwrap(),
                );
                found.extend(row.start_key.map(|_| row.execution_id.to_string()));
            }
        }
        assert_eq!(found, *acknowledged);
        assert_doctor_ok(&self.fixture);
    }
}

fn metrics(node: &Server) -> String {
    node.send_request("GET /metrics", "", "").body
}

/// Number of shards that a node owns, from its metrics.
fn owned_shards(node: &Server) -> usize {
    let is_owned = |line: &&str| line.starts_with("onward_shard_owner{") && line.ends_with(" 1");
    metrics(node).lines().filter(is_owned).count()
}

/// Starts executions one after the other through random nodes and waits for their results. Returns
/// their ids.
async fn run_client(shared: Arc<SharedNodes>, number: usize) -> Vec<String> {
    let mut client = RandomNodeClient {
        shared,
        random: number as u64,
    };
    let mut acknowledged = Vec::new();
    while !client.shared.has_ended.load(Ordering::SeqCst) {
        let kind = &CASES[(number * 5 + acknowledged.len()) % CASES.len()];
        let key = format!("load {number} {}", acknowledged.len());
        acknowledged.push(client.run_execution(kind, key).await);
    }
    acknowledged
}

struct RandomNodeClient {
    shared: Arc<SharedNodes>,
    random: u64,
}

impl RandomNodeClient {
    /// Sends a request to random nodes until one responds.
    async fn retry<T, A>(&mut self, send: impl Fn(Http) -> A) -> Result<T, Problem>
    where
        A: Future<Output = Result<T, Problem>>,
    {
        let since = Instant::now();
        let mut polls = interval(POLL_INTERVAL * 5);
        loop {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let node = self.shared.nodes.read().unwrap()[(self.random >> 33) as usize % 3].clone();
            match timeout(REQUEST_TIMEOUT, send(node)).await {
                Ok(Err(problem)) if is_transient(&problem) => {}
                Ok(response) => return response,
                Err(_) => {}
            }
            assert!(since.elapsed() < TIMEOUT, "no node responds");
            polls.tick().await;
        }
    }

    async fn run_execution(&mut self, kind: &'static WorkflowCase, key: String) -> String {
        let start = StartExecutionRequest {
            function: kind.function.to_owned(),
            input: parse_json(kind.input).unwrap(),
            key: Some(key),
            wait_ms: None,
        };
        let start = &start;
        let started = self
            .retry(|node| async move { node.start_execution(start.clone()).await })
            .await
            .unwrap();
        let id = &*started.execution;
        let seen = self
            .retry(|node| async move { node.get_execution(id).await })
            .await;
        assert!(seen.is_ok(), "an acknowledged execution exists: {seen:?}");
        self.act(kind, id).await;
        loop {
            let outcome = self
                .retry(|node| async move { node.get_execution_result(id, 1_000).await })
                .await
                .unwrap();
            if outcome.has_ended() {
                let ExecutionResult { result, error } = &outcome;
                kind.assert_outcome(match error {
                    Some(failure) => Err(&failure.kind),
                    None => Ok(result.as_ref().unwrap().as_str()),
                });
                return id.to_owned();
            }
        }
    }

    async fn act(&mut self, kind: &WorkflowCase, id: &str) {
        let done = match kind.act {
            CaseAction::Nothing => return,
            CaseAction::Early | CaseAction::Late => {
                let (name, payload) = ("user_approval".to_owned(), parse_json(APPROVED).unwrap());
                let signal = SignalExecutionRequest {
                    name,
                    payload,
                    key: Some("once".to_owned()),
                };
                let signal = &signal;
                self.retry(|node| async move { node.signal_execution(id, signal.clone()).await })
                    .await
            }
            CaseAction::Cancel => {
                let cancel = CancelExecutionRequest {
                    reason: "enough".to_owned(),
                };
                let cancel = &cancel;
                self.retry(|node| async move { node.cancel_execution(id, cancel.clone()).await })
                    .await
            }
        };
        // If a response was lost, the repeated request finds that the first one succeeded.
        assert!(
            !matches!(&done, Err(problem) if problem.code != Code::ExecutionOver),
            "{done:?}"
        );
    }
}

/// Whether the request may succeed on another node or later.
fn is_transient(problem: &Problem) -> bool {
    problem.code.status_and_title().0 >= 500
}
