//! Clients that wait for a journal or for the end of an execution: they are notified, and hardly
//! read the store. Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::EngineClient;
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_execution::ScriptedGuest;
use onward_journal::ExecutionId;
use onward_store::Store;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::observed_store::ObservedStore;
use crate::script_runtime::{Scripts, deployed_on, json};

const FUNCTIONS: &[&str] = &["patient"];

fn script(_: &str, _: Payload) -> ScriptedGuest {
    ScriptedGuest::new(|host| async move { Ok(host.await_signal("go", None).await?.unwrap()) })
}

/// A store with a node, and a client of the same process.
struct World {
    store: Arc<ObservedStore>,
    client: EngineClient,
    node: Arc<Node>,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(ObservedStore::new());
        let client = deployed_on(Arc::clone(&store) as Arc<dyn Store>, FUNCTIONS).await;
        let runtime = Scripts {
            functions: FUNCTIONS,
            script,
        };
        let library = FunctionRegistry::new(Arc::new(runtime), NativeTaskRegistry::default());
        let shared = Arc::clone(&store) as Arc<dyn Store>;
        let node = Arc::new(Node::new(shared, library, NodeOptions::default()));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::clone(&node).run(stopped));
        sleep(Duration::from_secs(1)).await;
        Self {
            store,
            client: client.with_local_node(&node),
            node,
            _stop: stop,
        }
    }

    async fn start(&self) -> ExecutionId {
        let started = self.client.start_execution("patient", json("1"), None);
        let id = started.await.unwrap().execution;
        sleep(Duration::from_secs(1)).await;
        id
    }

    async fn signal(&self, id: ExecutionId) {
        let name = "go".parse().unwrap();
        let sent = self.client.send_signal(id, name, json("2"), None);
        sent.await.unwrap();
    }

    /// Number of reads in four seconds.
    async fn count_reads(&self) -> u64 {
        self.store.counts();
        sleep(Duration::from_secs(4)).await;
        self.store.counts().0
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_clients_are_notified_of_the_end_and_hardly_read_the_store() {
    let world = World::new().await;
    let id = world.start().await;
    let without = world.count_reads().await;
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let client = world.client.clone();
            tokio::spawn(async move { client.wait_for_result(id).await.unwrap() })
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    let with = world.count_reads().await;
    assert!(with < without + 200, "{without} reads without, {with} with");
    let sent_at = Instant::now();
    world.signal(id).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Ok(json("2")));
    }
    assert!(sent_at.elapsed() < Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_notified_of_the_events_of_its_journal_only() {
    let world = World::new().await;
    let (id, other) = (world.start().await, world.start().await);
    let row = world.client.find_execution(id).await.unwrap().unwrap();
    let mut watch = world.client.watch_journal(&row);
    world.signal(other).await;
    let of_other = tokio::time::timeout(Duration::from_secs(4), watch.wait_for_change()).await;
    assert!(of_other.is_err(), "the watch waits for its own journal");
    let sent_at = Instant::now();
    world.signal(id).await;
    watch.wait_for_change().await;
    assert!(sent_at.elapsed() < Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_node_knows_whether_the_store_accepts_writes() {
    let world = World::new().await;
    world.node.check_store_writable().unwrap();
    world.store.set_away(true);
    sleep(Duration::from_secs(3)).await;
    world.node.check_store_writable().unwrap_err();
    world.store.set_away(false);
    sleep(Duration::from_secs(3)).await;
    world.node.check_store_writable().unwrap();
}
