//! A store with workflows that wait for every kind of thing, and a node that runs them. Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_engine::client::{Client, FunctionInfo, FunctionKind, Scope};
use onward_engine::doctor::{self, Code as Found, Finding};
use onward_engine::explain::{self, Explanation};
use onward_engine::node::{Code, Library, Native, Node, Options};
use onward_engine::shard::{Attempt, Entry, Unready};
use onward_execution::{Guest, Script, Taken};
use onward_journal::{
    ComponentDigest, ErrorKind, Event, ExecutionError, ExecutionId, InvokeResult, JournalEvent, Payload, Timestamp,
    codec,
};
use onward_store::memory::Memory;
use onward_store::tables::Execution;
use onward_store::{Clock, Commit, Field as _, JournalAppend, Key, Policy, Records as _, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let ms = self.0.elapsed().as_millis();
        Timestamp::EPOCH.plus_ms(1_000_000 + u64::try_from(ms).unwrap())
    }
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

/// What the functions do.
pub(crate) fn script(function: &str, input: Payload) -> Script {
    match function {
        "echo" => Script::new(|_| async move { Ok(input) }),
        "approve" => Script::new(|host| async move { Ok(host.signal("approval", None).await?.unwrap()) }),
        "hurry" => Script::new(|host| async move {
            Ok(host.signal("approval", Some(7_200_000)).await?.unwrap_or_else(Payload::null))
        }),
        "sleep" => Script::new(|host| async move { host.sleep(3_600_000).await.map(|()| Payload::null()) }),
        "work" => Script::new(|host| async move { host.invoke("slow", json("1")).await }),
        "try" => Script::new(|host| async move { host.invoke("broken", json("1")).await }),
        "chain" => Script::new(|host| async move {
            for _ in 0..input.as_str().parse::<u32>().unwrap() {
                host.invoke("quick", json("1")).await?;
            }
            Ok(input)
        }),
        "family" => Script::new(|host| async move {
            let set = host.join_set().await?;
            for _ in 0..2 {
                let child = host.schedule("approve", json("1")).await?;
                host.submit(set, child).await?;
            }
            while let Taken::Result(_, result) = host.next(set, None).await? {
                result?;
            }
            Ok(json("\"all approved\""))
        }),
        "again" => Script::new(|host| async move {
            match input.as_str() {
                "0" => host.signal("approval", None).await.map(|_| json("0")),
                _ => host.continue_as_new(json("0")).await.map(|()| Payload::null()),
            }
        }),
        "fail" => Script::new(|_| async move { Err(ExecutionError::named("card_declined", "no")) }),
        other => panic!("{other}"),
    }
}

struct Scripts;

#[async_trait]
impl Code for Scripts {
    async fn load(&self, _: &[u8]) -> Result<Vec<FunctionInfo>, String> {
        Ok(functions())
    }

    fn is_loaded(&self, _: ComponentDigest) -> bool {
        true
    }

    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        let (execution, input) = (entry.execution, entry.input);
        Ok(Box::new(script(&execution.function, input.clone())))
    }

    async fn task(&self, _: ComponentDigest, _: &Attempt) -> InvokeResult {
        Err(ExecutionError::new(ErrorKind::UserError, "scripts have no tasks"))
    }

    async fn http(&self, _: &Attempt) -> InvokeResult {
        Err(ExecutionError::new(ErrorKind::UserError, "scripts have no network"))
    }
}

fn functions() -> Vec<FunctionInfo> {
    ["echo", "approve", "hurry", "sleep", "work", "try", "chain", "family", "again", "fail"]
        .map(|name| FunctionInfo { name: name.to_owned(), kind: FunctionKind::Workflow, schema: None })
        .to_vec()
}

pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
}

/// A node; it is gone when this is dropped.
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), onward_store::Error>>,
}

impl Running {
    /// Gives its shards up.
    pub(crate) async fn stop(self) {
        self.stop.send(true).unwrap();
        self.node.await.unwrap().unwrap();
    }

    /// Does not.
    pub(crate) async fn kill(self) {
        self.node.abort();
        assert!(self.node.await.is_err());
    }
}

impl Place {
    pub(crate) async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new(Policy::default(), Arc::new(Paused(Instant::now()))));
        let scope = Scope {
            tenant: "acme".parse().unwrap(),
            project: "shop".parse().unwrap(),
            environment: "prod".parse().unwrap(),
        };
        let client = Client::new(Arc::clone(&store), scope);
        client.deploy(b"scripts", &functions(), &[]).await.unwrap();
        Self { store, client }
    }

    pub(crate) fn node(&self) -> Running {
        let slow = |_: Attempt| std::future::pending();
        let broken = |_: Attempt| async { Err(ExecutionError::named("busy", "no answer")) };
        let quick = |_: Attempt| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(json("1"))
        };
        let native = Native::default().task("slow", slow).task("broken", broken).task("quick", quick);
        let options = Options { name: "node a".into(), ..Options::default() };
        let node = Node::new(Arc::clone(&self.store), Library::new(Arc::new(Scripts), native), options);
        let (stop, stopped) = watch::channel(false);
        Running { stop, node: tokio::spawn(Arc::new(node).run(stopped)) }
    }

    pub(crate) async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client.start(function, json(input), None).await.unwrap().execution
    }

    /// Starts a function and lets a node run it until it waits.
    pub(crate) async fn waiting(&self, function: &str, input: &str) -> ExecutionId {
        let node = self.node();
        let id = self.start(function, input).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        node.stop().await;
        id
    }

    pub(crate) async fn explain(&self, id: ExecutionId) -> Explanation {
        explain::of(&self.client, id).await.unwrap()
    }

    pub(crate) async fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut report = |finding: &Finding| {
            found.push(finding.clone());
            Ok(())
        };
        doctor::all(&*self.store, &mut report, |_| ()).await.unwrap();
        found
    }

    pub(crate) async fn codes(&self) -> Vec<Found> {
        self.findings().await.into_iter().map(|finding| finding.code).collect()
    }

    /// Changes the row of an execution behind the engine's back.
    pub(crate) async fn tamper(&self, id: ExecutionId, change: impl FnOnce(&mut Execution)) {
        let (mut row, version) = self.row(id).await;
        change(&mut row);
        self.store.commit(Commit::new().update(&row, version)).await.unwrap();
    }

    pub(crate) async fn row(&self, id: ExecutionId) -> (Execution, u64) {
        self.store.get(Key(vec![id.to_value()])).await.unwrap().unwrap()
    }

    /// Appends to a journal behind the engine's back.
    pub(crate) async fn append(&self, id: ExecutionId, events: &[Event]) {
        let expected = self.client.journal(id).await.unwrap().len() as u64;
        let timestamp = self.store.now().await.unwrap();
        let numbered: Vec<JournalEvent> = (expected..)
            .zip(events)
            .map(|(sequence, event)| JournalEvent { sequence, timestamp, event: event.clone() })
            .collect();
        let records = codec::encode(id, &numbered).unwrap().into();
        let count = u32::try_from(events.len()).unwrap();
        self.store
            .commit(Commit::new().journal(JournalAppend { execution: id, expected, count, records }))
            .await
            .unwrap();
    }

    /// The children that an execution waits for.
    pub(crate) async fn children(&self, id: ExecutionId) -> Vec<ExecutionId> {
        let child = |recorded: JournalEvent| match recorded.event {
            Event::InvokeStarted { child, .. } => child,
            _ => None,
        };
        self.client.journal(id).await.unwrap().into_iter().filter_map(child).collect()
    }
}
