//! Where executions come to their limits: no room, no time, no code, too deep, and somebody who took their place. Time is
//! virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_engine::client::{Client, FunctionInfo, Order};
use onward_engine::node::{Code, Library, Native, Node, Options};
use onward_engine::shard::{self, Attempt, Entry, Unready};
use onward_execution::{Answer, Guest, Limits, Script, Turn};
use onward_journal::{
    ComponentDigest, Delivery, ErrorKind, Event, ExecutionError, ExecutionId, InvokeResult, Payload, RetryPolicy,
};
use onward_store::tables::{Alert, Message};
use onward_store::{Records as _, Scan, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::code::{deployed, json, workflows};

const FUNCTIONS: &[&str] =
    &["deep", "slow", "hasty", "counter", "guardian", "wide", "busy", "fickle", "tireless", "sole"];

fn once(timeout_ms: u64) -> Option<Box<RetryPolicy>> {
    Some(Box::new(RetryPolicy {
        max_attempts: std::num::NonZeroU32::new(1),
        timeout_ms: Some(timeout_ms),
        ..RetryPolicy::default()
    }))
}

fn script(function: &str, input: Payload, made: usize) -> Script {
    match function {
        // Calls itself, for ever.
        "deep" => Script::new(|host| async move { host.invoke("deep", json("null")).await }),
        "slow" => Script::new(|host| async move { host.sleep(3_600_000).await.map(|()| json("1")) }),
        "hasty" => Script::new(|host| async move {
            let slow = host.schedule_as("slow", json("null"), once(1_000), Delivery::AtLeastOnce).await?;
            host.wait(slow).await
        }),
        // A task that may be repeated by policy, and must not be once it has begun.
        "sole" => Script::new(|host| async move {
            let policy = RetryPolicy { timeout_ms: Some(1_000), ..RetryPolicy::default() };
            let name = input.as_str().trim_matches('"').to_owned();
            let task = host.schedule_as(&name, json("null"), Some(Box::new(policy)), Delivery::AtMostOnce).await?;
            host.wait(task).await
        }),
        // Counts signals, and continues as new after each.
        "counter" => Script::new(move |host| async move {
            let count: u32 = input.as_str().parse().unwrap();
            let last = host.signal("tick", None).await?.unwrap();
            if last == json("\"stop\"") {
                return Ok(json(&count.to_string()));
            }
            host.continue_as_new(json(&(count + 1).to_string())).await?;
            Ok(json("null"))
        }),
        "guardian" => Script::new(|host| async move { host.invoke("counter", json("0")).await }),
        // Asks for more at once than one commit takes.
        "wide" => Script::new(|host| async move {
            let large = json(&format!("\"{}\"", "x".repeat(1_000_000)));
            let mut tasks = Vec::new();
            for _ in 0..20 {
                tasks.push(host.schedule("work", large.clone()).await?);
            }
            let done = host.all(&tasks).await?;
            Ok(json(&done.into_iter().filter(Result::is_ok).count().to_string()))
        }),
        // Draws until its journal is full, and continues as new.
        "tireless" => Script::new(move |host| async move {
            if input == json("1") {
                return Ok(json("\"done\""));
            }
            while host.random(1).await.is_ok() {}
            host.continue_as_new(json("1")).await.map(|()| json("null"))
        }),
        "busy" => Script::new(|host| async move { host.invoke("work", json("1")).await }),
        // Asks for something else each time it is made.
        "fickle" => Script::new(move |host| async move {
            if made == 0 {
                host.sleep(60_000).await?
            } else {
                drop(host.random(4).await?)
            }
            host.signal("go", None).await?;
            Ok(json("null"))
        }),
        other => panic!("{other}"),
    }
}

/// Scripts, of which only so many have room at a time.
struct Crowded {
    room: Arc<AtomicUsize>,
    made: AtomicUsize,
}

/// A guest that takes room for as long as it is there.
struct Roomy {
    script: Script,
    room: Arc<AtomicUsize>,
}

impl Guest for Roomy {
    fn turn(&mut self, answer: Option<Answer>) -> Turn {
        self.script.turn(answer)
    }
}

impl Drop for Roomy {
    fn drop(&mut self) {
        self.room.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Code for Crowded {
    async fn load(&self, _: &[u8]) -> Result<Vec<FunctionInfo>, String> {
        Ok(workflows(FUNCTIONS))
    }

    fn is_loaded(&self, _: ComponentDigest) -> bool {
        true
    }

    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        if self.room() == 0 {
            return Err(Unready::Room);
        }
        self.room.fetch_sub(1, Ordering::SeqCst);
        let made = self.made.fetch_add(1, Ordering::SeqCst);
        let script = script(&entry.execution.function, entry.input.clone(), made);
        Ok(Box::new(Roomy { script, room: Arc::clone(&self.room) }))
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    async fn task(&self, _: ComponentDigest, _: &Attempt) -> Option<InvokeResult> {
        Some(Err(ExecutionError::new(ErrorKind::UserError, "scripts have no tasks")))
    }

    async fn http(&self, _: &Attempt) -> InvokeResult {
        Err(ExecutionError::new(ErrorKind::UserError, "scripts have no network"))
    }
}

struct World {
    store: Arc<dyn Store>,
    client: Client,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), onward_store::Error>>,
    /// How often a task that comes to nothing was begun.
    begun: Arc<AtomicUsize>,
}

impl World {
    async fn new(room: usize) -> Self {
        let client = deployed(FUNCTIONS).await;
        let store = Arc::clone(client.store());
        let native = Native::default().task("work", |attempt: Attempt| async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(attempt.input)
        });
        let begun: Arc<AtomicUsize> = Arc::default();
        let (endless, broken) = (Arc::clone(&begun), Arc::clone(&begun));
        let native = native.task("endless", move |_| {
            endless.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        });
        let native = native.task("broken", move |_| {
            broken.fetch_add(1, Ordering::SeqCst);
            async { panic!("it is broken") }
        });
        let code = Crowded { room: Arc::new(AtomicUsize::new(room)), made: AtomicUsize::new(0) };
        let library = Library::new(Arc::new(code), native);
        let limits = Limits { events_max: 100, ..Limits::default() };
        let shard = shard::Options { limits, ..shard::Options::default() };
        let options = Options { loading_max: 4, shard, ..Options::default() };
        let node = Arc::new(Node::new(Arc::clone(&store), library, options));
        let client = client.beside(&node);
        let (stop, stopped) = watch::channel(false);
        let node = tokio::spawn(node.run(stopped));
        Self { store, client, stop, node, begun }
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client.start(function, json(input), None).await.unwrap().execution
    }

    async fn result(&self, id: ExecutionId) -> InvokeResult {
        for _ in 0..10_000 {
            if let Some(result) = self.client.result(id).await.unwrap() {
                return result;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it never ends: {:?}", self.client.journal(id).await.unwrap().last());
    }

    async fn tick(&self, to: ExecutionId, text: &str, key: Option<&str>) {
        self.client.signal(to, "tick".parse().unwrap(), json(text), key).await.unwrap();
    }

    /// Until nothing waits to be taken any more.
    async fn settled(&self) {
        for _ in 0..1_000 {
            let waiting: Vec<(Message, u64)> = self.store.list(Scan::all::<Message>()).await.unwrap();
            if waiting.iter().all(|(message, _)| message.body.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("messages are never taken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_takes_too_long_is_not_waited_for() {
    let world = World::new(100).await;
    let id = world.start("hasty", "null").await;
    assert_eq!(world.result(id).await.unwrap_err().kind, ErrorKind::Timeout);
    let events = world.client.journal(id).await.unwrap();
    let child = events.iter().find_map(|it| match it.event {
        Event::InvokeStarted { performer, .. } => performer.child(),
        _ => None,
    });
    assert_eq!(world.result(child.unwrap()).await.unwrap_err().kind, ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_must_not_be_repeated_is_in_doubt_when_it_ends_without_an_answer() {
    for task in ["\"endless\"", "\"broken\""] {
        let world = World::new(100).await;
        let id = world.start("sole", task).await;
        let error = world.result(id).await.unwrap_err();
        assert_eq!((error.kind.as_str(), error.retryable), ("in_doubt", false), "{task}: {error}");
        assert_eq!(world.begun.load(Ordering::SeqCst), 1, "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn workflows_that_wait_for_each_other_come_to_an_end() {
    let world = World::new(1_000).await;
    let id = world.start("deep", "null").await;
    assert_eq!(world.result(id).await.unwrap_err().kind.as_str(), "too_deep");
    let executions = world.client.executions(Order::Oldest, None, 1_000).await.unwrap();
    assert_eq!(executions.len(), 65, "64 wait for one each");
}

#[tokio::test(start_paused = true)]
async fn signals_find_whoever_took_the_place_of_their_addressee() {
    let world = World::new(100).await;
    let id = world.start("counter", "0").await;
    for round in 0..5 {
        world.tick(id, "1", Some(&format!("key {round}"))).await;
        world.settled().await;
    }
    // Those were all taken by somebody; sending them again does nothing.
    for round in 0..5 {
        world.tick(id, "1", Some(&format!("key {round}"))).await;
        world.settled().await;
    }
    world.tick(id, "\"stop\"", None).await;
    assert_eq!(world.result(id).await, Ok(json("5")));
}

#[tokio::test(start_paused = true)]
async fn cancellation_finds_the_successor_of_a_child() {
    let world = World::new(100).await;
    let id = world.start("guardian", "null").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let executions = world.client.executions(Order::Oldest, None, 10).await.unwrap();
    let child = executions.iter().find(|row| &*row.function == "counter").unwrap().execution_id;
    world.tick(child, "1", None).await;
    world.settled().await;
    world.client.cancel(id, "enough").await.unwrap();
    assert_eq!(world.result(id).await.unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(world.result(child).await.unwrap_err().kind, ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn those_that_are_due_together_are_read_a_few_at_a_time() {
    let world = World::new(1_000).await;
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.push(world.start("slow", "null").await);
    }
    // They are put aside, and all wake in the same second.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    for id in ids {
        assert_eq!(world.result(id).await, Ok(json("1")));
    }
}

#[tokio::test(start_paused = true)]
async fn guests_that_find_no_room_wait_for_it() {
    let world = World::new(3).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        // Those that only wait make room for those that work.
        waiting.push(world.start("counter", "0").await);
    }
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(world.start("busy", "null").await);
    }
    for id in ids {
        assert_eq!(world.result(id).await, Ok(json("1")));
    }
    for id in waiting {
        world.tick(id, "\"stop\"", None).await;
        assert_eq!(world.result(id).await, Ok(json("0")));
    }
    world.stop.send(true).unwrap();
    world.node.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_cannot_go_on_raises_one_alert() {
    let world = World::new(100).await;
    let id = world.start("fickle", "null").await;
    // It is put aside while it sleeps, and does something else when it is made again.
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.client.signal(id, "go".parse().unwrap(), json("1"), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let alerts: Vec<(Alert, u64)> = world.store.list(Scan::all::<Alert>()).await.unwrap();
    let alerts: Vec<_> = alerts.iter().map(|(alert, _)| (&*alert.code, &*alert.subject)).collect();
    assert_eq!(alerts, [("EXECUTION_STUCK", &*id.to_string())]);
    let waiting: Vec<(Message, u64)> = world.store.list(Scan::all::<Message>()).await.unwrap();
    assert_eq!(waiting.len(), 1, "the signal is kept until the execution can take it");
}

#[tokio::test(start_paused = true)]
async fn what_a_step_asks_for_is_stored_in_pieces() {
    let world = World::new(100).await;
    let id = world.start("wide", "null").await;
    assert_eq!(world.result(id).await, Ok(json("20")));
    // The same from outside: more than one commit takes waits for it, and a cancellation behind that.
    let id = world.start("slow", "null").await;
    for _ in 0..20 {
        world.tick(id, &format!("\"{}\"", "x".repeat(1_000_000)), None).await;
    }
    world.client.cancel(id, "enough").await.unwrap();
    assert_eq!(world.result(id).await.unwrap_err().kind, ErrorKind::Cancelled);
    let too_large = json(&format!("\"{}\"", "x".repeat(2_000_000)));
    let refused = world.client.signal(id, "tick".parse().unwrap(), too_large, None).await.unwrap_err();
    assert!(matches!(refused, onward_engine::client::Refused::TooLarge { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_signal_is_nobody_elses() {
    let world = World::new(100).await;
    let id = world.start("slow", "null").await;
    for key in ["cancel", "", "cancel:"] {
        world.tick(id, "1", Some(key)).await;
    }
    world.settled().await;
    world.client.cancel(id, "enough").await.unwrap();
    assert_eq!(world.result(id).await.unwrap_err().kind, ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn messages_that_have_to_wait_hide_nobody() {
    let world = World::new(100).await;
    let stuck = world.start("fickle", "null").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let shard = world.client.execution(stuck).await.unwrap().unwrap().shard;
    let neighbour = loop {
        let id = world.start("counter", "0").await;
        if world.client.execution(id).await.unwrap().unwrap().shard == shard {
            break id;
        }
    };
    for _ in 0..1_100 {
        world.client.signal(stuck, "go".parse().unwrap(), json("1"), None).await.unwrap();
    }
    world.tick(neighbour, "\"stop\"", None).await;
    assert_eq!(world.result(neighbour).await, Ok(json("0")));
}

#[tokio::test(start_paused = true)]
async fn who_has_filled_a_journal_can_continue_in_another() {
    let world = World::new(100).await;
    let id = world.start("tireless", "0").await;
    assert_eq!(world.result(id).await, Ok(json("\"done\"")));
    assert_eq!(world.client.journal(id).await.unwrap().len(), 101, "a hundred events, and the end");
}
