//! kill -9 of the processes that run workflows, again and again under load: everything ends as it
//! should, once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use onward_base::{Payload, Scope};
use onward_embed::store;
use onward_engine::client::{EngineClient, ExecutionOrder, SHARD_COUNT, is_execution_over};
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{AwaitKind, Event, ExecutionId, InvokeResult, Journal, JournalEvent};
use onward_store::tables::{InboxMessageRow, ShardLeaseRow};
use onward_store::{RecordReader as _, StorePolicy, TableScan};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::kills::kills;
use crate::text;
use crate::work::Place;

/// Executions that are kept under way.
const UNDER_WAY: usize = 12;

/// How often to look at what other processes do.
pub(crate) const LOOK: Duration = Duration::from_millis(4);

/// Nothing here takes nearly as long.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

#[test]
fn workflows_survive_kills_of_their_process_on_sqlite() {
    survive(&Place::sqlite(), 1, kills(100));
}

#[test]
fn workflows_survive_kills_of_one_of_two_processes_on_postgres() {
    survive(&Place::postgres(), 2, kills(50));
}

/// What a workflow is given, what is done to it, and what it must end with.
pub(crate) struct Kind {
    pub(crate) function: &'static str,
    pub(crate) input: &'static str,
    pub(crate) act: Act,
    /// JSON, or the kind of the failure; one of these.
    results: &'static [Result<&'static str, &'static str>],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Signals at once.
    Early,
    /// Signals when it waits for that.
    Late,
    /// Cancels when it waits for a signal.
    Cancel,
}

impl Kind {
    /// Whether it may end so.
    pub(crate) fn expect(&self, found: Result<&str, &str>) {
        assert!(
            self.results.contains(&found),
            "{} {}: {found:?}",
            self.function,
            self.input
        );
    }
}

const fn kind(
    function: &'static str,
    input: &'static str,
    act: Act,
    results: &'static [Result<&'static str, &'static str>],
) -> Kind {
    Kind {
        function,
        input,
        act,
        results,
    }
}

pub(crate) const APPROVED: &str = r#"{"approved":true}"#;

const ONCE: &str = r#"{"function":"step","input":"work","at_most_once":true}"#;

pub(crate) const KINDS: [Kind; 11] = [
    kind(
        "chain",
        r#"{"steps":25,"work":10}"#,
        Act::Nothing,
        &[Ok("25")],
    ),
    kind(
        "fan_out",
        r#"{"steps":12,"work":10}"#,
        Act::Nothing,
        &[Ok("12")],
    ),
    kind("parent", "5", Act::Nothing, &[Ok("7")]),
    kind("counter", "6", Act::Nothing, &[Ok("0")]),
    kind("persistent", r#"{"count":2}"#, Act::Nothing, &[Ok("3")]),
    kind(
        "persistent",
        r#"{"count":9}"#,
        Act::Nothing,
        &[Err("flaky")],
    ),
    kind("saga", r#""seat""#, Act::Cancel, &[Err("cancelled")]),
    kind(
        "blocking_signal",
        r#"{"order":7}"#,
        Act::Late,
        &[Ok(APPROVED)],
    ),
    kind(
        "buffered_signal",
        r#"{"order":7}"#,
        Act::Early,
        &[Ok(APPROVED)],
    ),
    kind("sleeper", "20", Act::Nothing, &[Ok("null")]),
    // A kill may leave it unknown whether this was done.
    kind(
        "call_native",
        ONCE,
        Act::Nothing,
        &[Ok("4"), Err("in_doubt")],
    ),
];

/// An execution that was started.
struct Started {
    id: ExecutionId,
    kind: &'static Kind,
    /// Events that were seen, and whether it is over.
    events: usize,
    is_over: bool,
    has_acted: bool,
}

/// The load, and what is known of it.
struct Load {
    client: EngineClient,
    started: Vec<Started>,
}

/// Kills a process when there was progress, and starts another in its place.
#[tokio::main]
async fn survive(place: &Place, workers: usize, kills: usize) {
    let mut load = Load {
        client: client(place).await,
        started: Vec::new(),
    };
    load.top_up().await;
    let mut running: Vec<Worker> = (0..workers).map(|_| Worker::start(place)).collect();
    for round in 0..kills {
        load.top_up().await;
        if round % 10 == 9 {
            load.change_of_hands().await;
        } else {
            load.progress(1 + round * 7_919 % 61).await;
        }
        let worker = load.victim(&running, round).await;
        let worker = &mut running[worker];
        assert!(worker.kill(), "it has stopped by itself");
        // What it did at last is no progress of the next.
        load.look().await;
        *worker = Worker::start(place);
    }
    load.finish().await;
    drop(running);
    let (executions, takeovers) = load.check().await;
    println!(
        "{workers} at once, {kills} kills: {executions} executions, shards changed hands {takeovers} times"
    );
    expect_healthy(place);
}

pub(crate) async fn client(place: &Place) -> EngineClient {
    let part = || "default";
    let scope = Scope {
        tenant: part().parse().unwrap(),
        project: part().parse().unwrap(),
        environment: part().parse().unwrap(),
    };
    EngineClient::new(
        store::open_store(&place.url, StorePolicy::default())
            .await
            .unwrap(),
        scope,
    )
}

/// A process that runs workflows, and is gone when the test is.
struct Worker(Child);

impl Worker {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["node", "--store", &place.url, "--lease-ms", "200"]);
        command.env("ONWARD_CACHE", own_cache(place));
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Tells whether it worked until now.
    fn kill(&mut self) -> bool {
        self.0.kill().is_ok() && self.0.wait().is_ok_and(|status| status.code().is_none())
    }
}

/// What is killed leaves something behind in its cache, and that is not for others. Compiled code
/// is taken from theirs.
fn own_cache(place: &Place) -> PathBuf {
    let (shared, own) = (
        std::env::temp_dir().join("onward-test-cache"),
        place.folder.path().join("cache"),
    );
    if !own.exists() {
        std::fs::create_dir(&own).unwrap();
        for entry in std::fs::read_dir(shared)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_file())
        {
            // What is gone was not compiled code.
            let _ = std::fs::copy(entry.path(), own.join(entry.file_name()));
        }
    }
    own
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Load {
    /// Starts as many executions as are over.
    async fn top_up(&mut self) {
        let open = self.started.iter().filter(|it| !it.is_over).count();
        for _ in open..UNDER_WAY {
            let kind = &KINDS[self.started.len() % KINDS.len()];
            let key = format!("load {}", self.started.len());
            let input = Payload::parse(kind.input).unwrap();
            let id = self
                .client
                .start_execution(kind.function, input, Some(&key))
                .await
                .unwrap()
                .execution;
            let mut started = Started {
                id,
                kind,
                events: 1,
                is_over: false,
                has_acted: false,
            };
            if kind.act == Act::Early {
                act(&self.client, &mut started).await;
            }
            self.started.push(started);
        }
    }

    /// Looks at what is under way, and tells how many events are new.
    async fn look(&mut self) -> usize {
        let mut new = 0;
        for it in self.started.iter_mut().filter(|it| !it.is_over) {
            let events = self.client.read_journal(it.id).await.unwrap();
            new += events.len() - it.events;
            it.events = events.len();
            it.is_over = self.client.execution_result(it.id).await.unwrap().is_some();
            if !it.has_acted
                && matches!(it.kind.act, Act::Late | Act::Cancel)
                && waits_for_signal(&events)
            {
                act(&self.client, it).await;
            }
        }
        new
    }

    /// Waits until there are so many events more, or nothing is under way.
    async fn progress(&mut self, events: usize) {
        let mut missing = events;
        let mut looks = Looks::new();
        while missing > 0 && self.started.iter().any(|it| !it.is_over) {
            missing = missing.saturating_sub(self.look().await);
            self.wait(&mut looks).await;
        }
    }

    /// Waits until somebody has taken a shard over, or else until something happens: nobody takes
    /// over from a process that had nothing.
    async fn change_of_hands(&mut self) {
        let epochs = self.epochs().await;
        let mut looks = Looks::new();
        while self.epochs().await == epochs && self.look().await == 0 {
            self.wait(&mut looks).await;
        }
    }

    /// Whose turn it is to be killed: whoever owns a shard, and another one each time.
    async fn victim(&self, running: &[Worker], round: usize) -> usize {
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        let owner = leases
            .get(round % leases.len().max(1))
            .map(|(lease, _)| &*lease.node);
        let place = running
            .iter()
            .position(|worker| owner == Some(&*format!("pid {}", worker.0.id())));
        place.unwrap_or(round % running.len())
    }

    async fn epochs(&self) -> u64 {
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        leases.iter().map(|(lease, _)| lease.epoch.0).sum()
    }

    /// Waits until everything is over, and nothing is on its way to anybody.
    async fn finish(&mut self) {
        let mut looks = Looks::new();
        while self.started.iter().any(|it| !it.is_over) || !self.messages().await.is_empty() {
            self.look().await;
            self.wait(&mut looks).await;
        }
    }

    /// Waits for the next look. Says how things stand when nothing comes of it.
    async fn wait(&self, looks: &mut Looks) {
        if looks.next().await {
            return;
        }
        for it in self.started.iter().filter(|it| !it.is_over) {
            let row = self.client.find_execution(it.id).await.unwrap().unwrap();
            let events = self.client.read_journal(it.id).await.unwrap();
            println!(
                "{} on {} {} until {}",
                it.kind.function, row.shard, row.state, row.wake_at
            );
            events
                .iter()
                .rev()
                .take(4)
                .for_each(|event| println!("    {}", JournalLine::new(event, it.id)));
        }
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        let now = self.client.store().now().await.unwrap();
        panic!(
            "nothing goes on; at {now}: {:?} {leases:?}",
            self.messages().await
        );
    }

    /// Messages that nobody has taken. Of signals that were taken the key stays behind, where no
    /// shard looks.
    async fn messages(&self) -> Vec<InboxMessageRow> {
        let rows: Vec<(InboxMessageRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<InboxMessageRow>())
            .await
            .unwrap();
        rows.into_iter()
            .map(|(message, _)| message)
            .filter(|message| message.shard.0 < SHARD_COUNT)
            .collect()
    }

    /// All executions, those that others started included: how many there are, and how often a
    /// shard changed hands.
    async fn check(&self) -> (usize, u64) {
        for it in &self.started {
            let result = self.client.execution_result(it.id).await.unwrap().unwrap();
            expect_result(it.kind, &result);
        }
        let (mut after, mut count) = (None, 0);
        loop {
            let rows = self
                .client
                .list_executions(ExecutionOrder::Oldest, after, 500)
                .await
                .unwrap();
            let Some(last) = rows.last() else { break };
            after = Some((last.created_at, last.execution_id));
            count += rows.len();
            for row in rows {
                assert!(is_execution_over(&row), "{row:?}");
                expect_sound(
                    row.execution_id,
                    &self.client.read_journal(row.execution_id).await.unwrap(),
                );
            }
        }
        assert!(count > self.started.len(), "some have started others");
        (count, self.epochs().await)
    }
}

/// Looks from time to time, though not for ever.
struct Looks {
    ticks: tokio::time::Interval,
    since: Instant,
}

impl Looks {
    fn new() -> Self {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            since: Instant::now(),
        }
    }

    /// Waits for the next; tells whether there is one.
    async fn next(&mut self) -> bool {
        self.ticks.tick().await;
        self.since.elapsed() < HANGS
    }
}

fn waits_for_signal(events: &[JournalEvent]) -> bool {
    let last = events.last().map(|it| &it.event);
    matches!(
        last,
        Some(Event::ExecutionAwaiting {
            kind: AwaitKind::Signal(_),
            ..
        })
    )
}

async fn act(client: &EngineClient, it: &mut Started) {
    it.has_acted = true;
    match it.kind.act {
        Act::Nothing => {}
        Act::Early | Act::Late => {
            let (name, payload) = (
                "user_approval".parse().unwrap(),
                Payload::parse(APPROVED).unwrap(),
            );
            client
                .send_signal(it.id, name, payload, Some("once"))
                .await
                .unwrap();
        }
        Act::Cancel => client.request_cancel(it.id, "enough").await.unwrap(),
    }
}

fn expect_result(kind: &Kind, result: &InvokeResult) {
    kind.expect(match result {
        Ok(payload) => Ok(payload.as_str()),
        Err(error) => Err(error.kind.as_str()),
    });
}

/// The rules hold for what is stored and for what is printed of it, and everything that was begun
/// has ended once.
pub(crate) fn expect_sound(id: ExecutionId, events: &[JournalEvent]) {
    Journal::recover(id, events.to_vec()).unwrap();
    let mut reader = JournalLineReader::new();
    let read = events
        .iter()
        .map(|event| {
            reader
                .read_line(&JournalLine::new(event, id).to_string())
                .unwrap()
        })
        .collect();
    Journal::recover(reader.execution_id(), read).unwrap();
    let mut ends = BTreeMap::new();
    for event in events {
        match &event.event {
            Event::InvokeScheduled { promise_id, .. } => *ends.entry(promise_id).or_insert(0) += 0,
            Event::InvokeCompleted { promise_id, .. } => *ends.entry(promise_id).or_insert(0) += 1,
            _ => {}
        }
    }
    // Cancellation leaves behind what is under way, unless the guest has something to clean up.
    let is_cut_off = matches!(
        events.last().map(|it| &it.event),
        Some(Event::ExecutionCancelled { .. })
    );
    let is_ended = |count: &i32| *count == 1 || is_cut_off && *count == 0;
    assert!(ends.values().all(is_ended), "{id}: {ends:?}");
}

pub(crate) fn expect_healthy(place: &Place) {
    let doctor = place.run(&["doctor"]);
    assert_eq!(
        doctor.status.code(),
        Some(0),
        "{}{}",
        text(&doctor.stdout),
        text(&doctor.stderr)
    );
}
