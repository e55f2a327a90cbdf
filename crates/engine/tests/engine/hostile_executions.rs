//! Executions that cannot be committed, do not notice that they are cancelled, or take their node
//! down: each ends with a clear failure, and none is repeated for ever. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::EngineClient;
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::shard::TaskAttempt;
use onward_execution::ScriptedGuest;
use onward_journal::{Event, ExecutionId, InvokeResult};
use onward_store::{Error, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::script_runtime::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &["deadly", "hoarder", "spin"];

fn script(function: &str, _: Payload) -> ScriptedGuest {
    match function {
        // Its task takes the node down.
        "deadly" => {
            ScriptedGuest::new(|host| async move { host.invoke_function("kill", json("1")).await })
        }
        // Continues as new with more unread signals than a commit can hold.
        "hoarder" => ScriptedGuest::new(|host| async move {
            host.sleep(5_000).await?;
            host.continue_as_new(json("1")).await?;
            Ok(json("1"))
        }),
        // Computes for ever.
        _ => ScriptedGuest::new(|host| async move {
            host.now().await?;
            std::future::pending().await
        }),
    }
}

struct HostileFixture {
    store: Arc<dyn Store>,
    client: EngineClient,
    /// How often the deadly task was begun.
    begun: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), Error>>,
}

impl HostileFixture {
    async fn open() -> Self {
        let client = deployed(FUNCTIONS).await;
        let begun = Arc::default();
        let (stop, node, local) = run_node(&client, &begun);
        Self {
            store: Arc::clone(client.store()),
            client: local,
            begun,
            stop,
            node,
        }
    }

    /// Kills the node without a chance to release its shards, and starts another.
    fn crash(&mut self) {
        self.node.abort();
        (self.stop, self.node, self.client) = run_node(&self.client, &self.begun);
    }

    /// Stops the node, which releases its shards, and starts another.
    async fn restart(&mut self) {
        self.stop.send_replace(true);
        (&mut self.node).await.unwrap().unwrap();
        (self.stop, self.node, self.client) = run_node(&self.client, &self.begun);
    }

    async fn start(&self, function: &str) -> ExecutionId {
        let started = self.client.start_execution(function, json("1"), None);
        started.await.unwrap().execution
    }

    async fn wait_until_begun(&self, times: usize) {
        while self.begun.load(Ordering::SeqCst) < times {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The attempts that failed, with the kind of their errors.
    async fn failed_attempts(&self, execution: ExecutionId) -> Vec<(u32, String)> {
        let journal = self.client.read_journal(execution).await.unwrap();
        let failed = journal.iter().filter_map(|recorded| match &recorded.event {
            Event::InvokeRetrying {
                failed_attempt,
                error,
                ..
            } => Some((*failed_attempt, error.kind.to_string())),
            _ => None,
        });
        failed.collect()
    }

    async fn result(&self, execution: ExecutionId) -> InvokeResult {
        self.client.wait_for_result(execution).await.unwrap()
    }
}

fn run_node(
    client: &EngineClient,
    begun: &Arc<AtomicUsize>,
) -> (
    watch::Sender<bool>,
    JoinHandle<Result<(), Error>>,
    EngineClient,
) {
    let begun = Arc::clone(begun);
    let native = NativeTaskRegistry::default().with_task("kill", move |_: TaskAttempt| {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    let code = Scripts {
        functions: FUNCTIONS,
        script,
    };
    let options = NodeOptions {
        drain_timeout: Duration::from_millis(100),
        ..NodeOptions::default()
    };
    let library = FunctionRegistry::new(Arc::new(code), native);
    let node = Arc::new(Node::new(Arc::clone(client.store()), library, options));
    let client = client.clone().with_local_node(&node);
    let (stop, stopped) = watch::channel(false);
    (stop, tokio::spawn(node.run(stopped)), client)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_its_node_down_three_times_fails() {
    let mut fixture = HostileFixture::open().await;
    let execution = fixture.start("deadly").await;
    for times in 1..=3 {
        fixture.wait_until_begun(times).await;
        assert_eq!(fixture.failed_attempts(execution).await, []);
        fixture.crash();
    }
    // The fourth node fails the attempt, and the retry policy starts the next one.
    fixture.wait_until_begun(4).await;
    let failed = fixture.failed_attempts(execution).await;
    assert_eq!(failed, [(1, "node_lost".to_owned())]);
    // The next attempt is counted from the start.
    fixture.crash();
    fixture.wait_until_begun(5).await;
    assert_eq!(fixture.failed_attempts(execution).await, failed);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_handed_over_is_not_held_responsible() {
    let mut fixture = HostileFixture::open().await;
    let execution = fixture.start("deadly").await;
    for times in 1..=6 {
        fixture.wait_until_begun(times).await;
        fixture.restart().await;
    }
    fixture.wait_until_begun(7).await;
    assert_eq!(fixture.failed_attempts(execution).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_too_large_to_commit_fails_the_execution() {
    let fixture = HostileFixture::open().await;
    let execution = fixture.start("hoarder").await;
    let large = json(&format!("\"{}\"", "x".repeat(1_000_000)));
    for _ in 0..20 {
        let name = "unread".parse().unwrap();
        let sent = fixture
            .client
            .send_signal(execution, name, large.clone(), None);
        sent.await.unwrap();
    }
    let error = fixture.result(execution).await.unwrap_err();
    assert_eq!(error.kind.as_str(), "step_too_large", "{error}");
    drop(Arc::clone(&fixture.store));
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_workflow_that_computes_is_recorded_at_once_and_ends_it_after_a_while() {
    let fixture = HostileFixture::open().await;
    let execution = fixture.start("spin").await;
    let count = async || fixture.client.read_journal(execution).await.unwrap().len();
    while count().await < 1 {
        tokio::task::yield_now().await;
    }
    let cancelled = fixture.client.request_cancel(execution, "enough");
    cancelled.await.unwrap();
    let is_recorded = async || {
        let journal = fixture.client.read_journal(execution).await.unwrap();
        let mut events = journal.iter().map(|recorded| recorded.event.kind().name());
        events.any(|name| name == "CancelRequested")
    };
    while !is_recorded().await {
        tokio::task::yield_now().await;
    }
    // A node that is never idle does not let virtual time pass by itself.
    tokio::time::advance(Duration::from_secs(11)).await;
    let error = fixture.result(execution).await.unwrap_err();
    assert_eq!(error.kind.as_str(), "cancelled", "{error}");
}
