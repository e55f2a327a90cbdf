//! Three nodes on one Postgres under load, while they are killed, stopped, paused and cut off, and
//! the database is killed too: what was acknowledged is there, everything ends as it should, once.

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
use onward_engine::client::{EngineClient, ExecutionOrder, is_execution_over};
use onward_store::tables::ShardLeaseRow;
use onward_store::{RecordReader as _, TableScan};
use onward_testing::{PostgresCluster, TcpProxy};
use tokio::time::{Instant, interval, timeout};

use crate::crash::{APPROVED, Act, HANGS, KINDS, Kind, LOOK, client, expect_healthy, expect_sound};
use crate::server::{Server, token};
use crate::work::Place;

/// How long others wait before they take over.
const LEASE: Duration = Duration::from_secs(1);

/// How long whoever asks waits for an answer before asking another node.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many ask at once.
const LOADS: usize = 6;

/// Things that happen besides kills, one after the other.
const ROUNDS: usize = 4;

/// Rounds at most on a machine so busy that everything was late so far.
const ROUNDS_MAX: usize = 5 * ROUNDS;

/// Ten seconds unless `ONWARD_NODES_SECONDS` says otherwise.
fn length() -> Duration {
    let seconds = std::env::var("ONWARD_NODES_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

#[test]
fn three_nodes_on_one_postgres_lose_nothing_whatever_happens_to_them() {
    survive();
}

#[tokio::main]
async fn survive() {
    let mut world = World::new().await;
    let loads: Vec<_> = (0..LOADS)
        .map(|number| tokio::spawn(load(Arc::clone(&world.shared), number)))
        .collect();
    let since = Instant::now();
    let mut round = 0;
    let is_wanted =
        |round: usize, times: &Times| round < ROUNDS || round < ROUNDS_MAX && !times.is_kept();
    while since.elapsed() < length() || is_wanted(round, &world.times) {
        world.kill(round % 3).await;
        match round % ROUNDS {
            0 => world.stop((round + 1) % 3).await,
            1 => world.pause((round + 1) % 3).await,
            2 => world.kill_postgres(),
            _ => world.cut().await,
        }
        round += 1;
    }
    world.shared.is_over.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeSet::new();
    for load in loads {
        acknowledged.extend(load.await.unwrap());
    }
    world.expect_balance().await;
    println!(
        "{round} rounds, {} executions; {}",
        acknowledged.len(),
        world.times
    );
    world.times.expect_promise();
    world.check(&acknowledged).await;
}

/// What those who ask know.
struct Shared {
    nodes: RwLock<Vec<Http>>,
    is_over: AtomicBool,
}

struct World {
    place: Place,
    cluster: Arc<PostgresCluster>,
    /// The first node's way to the database.
    wire: TcpProxy,
    token: String,
    nodes: Vec<Server>,
    names: Vec<String>,
    started: usize,
    shared: Arc<Shared>,
    client: EngineClient,
    times: Times,
}

/// How long it took until others had what a node had, each time.
#[derive(Default)]
struct Times {
    killed: Vec<Duration>,
    stopped: Vec<Duration>,
}

impl Times {
    /// A machine that is busy with other things makes some of them late, and not all.
    fn expect_promise(&self) {
        assert!(
            self.is_kept_for_killed(),
            "within the lease: {:?}",
            self.killed
        );
        assert!(
            self.is_kept_for_stopped(),
            "sooner than that: {:?}",
            self.stopped
        );
    }

    fn is_kept(&self) -> bool {
        self.is_kept_for_killed() && self.is_kept_for_stopped()
    }

    fn is_kept_for_killed(&self) -> bool {
        self.killed
            .iter()
            .any(|took| *took <= LEASE + Duration::from_millis(100))
    }

    fn is_kept_for_stopped(&self) -> bool {
        self.stopped.iter().any(|took| *took < LEASE)
    }
}

impl std::fmt::Display for Times {
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

impl World {
    async fn new() -> Self {
        let cluster = Arc::new(PostgresCluster::start().unwrap());
        let place = Place::on(Arc::clone(&cluster));
        let token = token(&place, "admin", &[]);
        let shared = Arc::new(Shared {
            nodes: RwLock::default(),
            is_over: AtomicBool::new(false),
        });
        let mut world = Self {
            client: client(&place).await,
            wire: TcpProxy::forward_to(cluster.port()).unwrap(),
            place,
            cluster,
            token,
            nodes: Vec::new(),
            names: vec![String::new(); 3],
            started: 0,
            shared,
            times: Times::default(),
        };
        for slot in 0..3 {
            let node = world.begin(slot);
            world.nodes.push(node);
        }
        world
    }

    /// Starts a node under a name that none had before.
    fn begin(&mut self, slot: usize) -> Server {
        self.started += 1;
        let name = format!("node {}", self.started);
        let port = |port: u16| format!(":{port}/");
        let url = match slot {
            0 => self
                .place
                .url
                .replace(&port(self.cluster.port()), &port(self.wire.port())),
            _ => self.place.url.clone(),
        };
        let lease = LEASE.as_millis().to_string();
        let args = [
            "--store",
            &url,
            "--node-name",
            &name,
            "--lease-ms",
            &lease,
            "--drain-ms",
            "5000",
        ];
        let node = Server::of(&self.place, &args);
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

    /// Waits until others have all that this one had.
    async fn until_replaced(&self, slot: usize) -> Duration {
        let since = Instant::now();
        let mut looks = interval(LOOK);
        while self
            .leases()
            .await
            .iter()
            .any(|lease| *lease.node == *self.names[slot])
        {
            assert!(
                since.elapsed() < HANGS,
                "nobody takes over: {:?}",
                self.leases().await
            );
            looks.tick().await;
        }
        since.elapsed()
    }

    async fn kill(&mut self, slot: usize) {
        self.nodes[slot].child.kill().unwrap();
        self.nodes[slot].child.wait().unwrap();
        let took = self.until_replaced(slot).await;
        self.times.killed.push(took);
        self.nodes[slot] = self.begin(slot);
    }

    async fn stop(&mut self, slot: usize) {
        self.nodes[slot].signal("TERM");
        let took = self.until_replaced(slot).await;
        self.times.stopped.push(took);
        assert_eq!(
            self.nodes[slot].child.wait().unwrap().code(),
            Some(0),
            "it stops in order"
        );
        self.nodes[slot] = self.begin(slot);
    }

    /// Lets a node stand still until others have its shards; it does not know when it goes on.
    async fn pause(&self, slot: usize) {
        self.nodes[slot].signal("STOP");
        self.until_replaced(slot).await;
        self.nodes[slot].signal("CONT");
    }

    fn kill_postgres(&self) {
        self.cluster.stop_immediately().unwrap();
        self.cluster.restart_server().unwrap();
    }

    /// Cuts the connections of a node to the database; one that has just begun may not have any
    /// yet.
    async fn cut(&self) {
        let mut looks = interval(LOOK);
        let cut = async {
            while self.wire.cut_connections() == 0 {
                looks.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), cut)
            .await
            .expect("it is in use");
    }

    /// Waits until each has its share, as they say themselves.
    async fn expect_balance(&self) {
        let since = Instant::now();
        let mut looks = interval(LOOK * 10);
        loop {
            let counts: Vec<usize> = self.nodes.iter().map(shards).collect();
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
            assert!(since.elapsed() < HANGS, "{counts:?}");
            looks.tick().await;
        }
    }

    /// Everything that was acknowledged is there and over, and nothing else was begun.
    async fn check(mut self, acknowledged: &BTreeSet<String>) {
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
            "all of them were released"
        );
        let (mut after, mut found) = (None, BTreeSet::new());
        loop {
            let rows = self
                .client
                .list_executions(ExecutionOrder::Oldest, after, 500)
                .await
                .unwrap();
            let Some(last) = rows.last() else { break };
            after = Some((last.created_at, last.execution_id));
            for row in rows {
                assert!(is_execution_over(&row), "{row:?}");
                expect_sound(
                    row.execution_id,
                    &self.client.read_journal(row.execution_id).await.unwrap(),
                );
                found.extend(row.start_key.map(|_| row.execution_id.to_string()));
            }
        }
        assert_eq!(found, *acknowledged);
        expect_healthy(&self.place);
    }
}

fn metrics(node: &Server) -> String {
    node.ask("GET /metrics", "", "").body
}

/// How many shards a node says that it has.
fn shards(node: &Server) -> usize {
    let is_owned = |line: &&str| line.starts_with("onward_shard_owner{") && line.ends_with(" 1");
    metrics(node).lines().filter(is_owned).count()
}

/// Starts one execution after the other, each through another node, and sees it to its end. Returns
/// which.
async fn load(shared: Arc<Shared>, number: usize) -> Vec<String> {
    let mut asked = Asked {
        shared,
        draw: number as u64,
    };
    let mut acknowledged = Vec::new();
    while !asked.shared.is_over.load(Ordering::SeqCst) {
        let kind = &KINDS[(number * 5 + acknowledged.len()) % KINDS.len()];
        let key = format!("load {number} {}", acknowledged.len());
        acknowledged.push(asked.see_through(kind, key).await);
    }
    acknowledged
}

struct Asked {
    shared: Arc<Shared>,
    draw: u64,
}

impl Asked {
    /// Asks one node after the other until one answers.
    async fn insist<T, A>(&mut self, ask: impl Fn(Http) -> A) -> Result<T, Problem>
    where
        A: Future<Output = Result<T, Problem>>,
    {
        let since = Instant::now();
        let mut looks = interval(LOOK * 5);
        loop {
            self.draw = self
                .draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let node = self.shared.nodes.read().unwrap()[(self.draw >> 33) as usize % 3].clone();
            match timeout(PATIENCE, ask(node)).await {
                Ok(Err(problem)) if is_passing(&problem) => {}
                Ok(answer) => return answer,
                Err(_) => {}
            }
            assert!(since.elapsed() < HANGS, "nobody answers");
            looks.tick().await;
        }
    }

    async fn see_through(&mut self, kind: &'static Kind, key: String) -> String {
        let start = StartExecutionRequest {
            function: kind.function.to_owned(),
            input: parse_json(kind.input).unwrap(),
            key: Some(key),
            wait_ms: None,
        };
        let start = &start;
        let started = self
            .insist(|node| async move { node.start_execution(start.clone()).await })
            .await
            .unwrap();
        let id = &*started.execution;
        let seen = self
            .insist(|node| async move { node.get_execution(id).await })
            .await;
        assert!(seen.is_ok(), "what was acknowledged is there: {seen:?}");
        self.act(kind, id).await;
        loop {
            let outcome = self
                .insist(|node| async move { node.get_execution_result(id, 1_000).await })
                .await
                .unwrap();
            if outcome.has_ended() {
                let ExecutionResult { result, error } = &outcome;
                kind.expect(match error {
                    Some(failure) => Err(&failure.kind),
                    None => Ok(result.as_ref().unwrap().as_str()),
                });
                return id.to_owned();
            }
        }
    }

    async fn act(&mut self, kind: &Kind, id: &str) {
        let done = match kind.act {
            Act::Nothing => return,
            Act::Early | Act::Late => {
                let (name, payload) = ("user_approval".to_owned(), parse_json(APPROVED).unwrap());
                let signal = SignalExecutionRequest {
                    name,
                    payload,
                    key: Some("once".to_owned()),
                };
                let signal = &signal;
                self.insist(|node| async move { node.signal_execution(id, signal.clone()).await })
                    .await
            }
            Act::Cancel => {
                let cancel = CancelExecutionRequest {
                    reason: "enough".to_owned(),
                };
                let cancel = &cancel;
                self.insist(|node| async move { node.cancel_execution(id, cancel.clone()).await })
                    .await
            }
        };
        // Whoever was not told that it arrived finds that it did.
        assert!(
            !matches!(&done, Err(problem) if problem.code != Code::ExecutionOver),
            "{done:?}"
        );
    }
}

/// Whether another node, or the same one later, may do better.
fn is_passing(problem: &Problem) -> bool {
    problem.code.about().0 >= 500
}
