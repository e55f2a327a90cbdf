//! Repeated SIGKILL of the processes that run workflows, under load: each execution ends once, with
//! the expected result.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use onward_base::{Payload, Scope};
use onward_embed::store;
use onward_engine::client::{
    EngineClient, ExecutionFilter, ExecutionListOrder, SHARD_COUNT, is_execution_over,
};
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{AwaitKind, Event, ExecutionId, InvokeResult, Journal, JournalEvent};
use onward_store::tables::{InboxMessageRow, ShardLeaseRow};
use onward_store::{RecordReader as _, StorePolicy, TableScan};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::append_kills::kills;
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Number of executions in progress at any time.
const CONCURRENT_EXECUTIONS: usize = 12;

/// Interval between two polls of the state of other processes.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(4);

/// Timeout of each wait; a wait usually takes far less.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn workflows_survive_kills_of_their_process_on_sqlite() {
    run_through_kills(&WorkflowStoreFixture::sqlite(), 1, kills(100));
}

#[test]
fn workflows_survive_kills_of_one_of_two_processes_on_postgres() {
    run_through_kills(&WorkflowStoreFixture::postgres(), 2, kills(50));
}

/// A workflow with its input, an action from outside, and the permitted outcomes.
pub(crate) struct WorkflowCase {
    pub(crate) function: &'static str,
    pub(crate) input: &'static str,
    pub(crate) act: CaseAction,
    /// Permitted outcomes: a result as JSON, or an error kind.
    results: &'static [Result<&'static str, &'static str>],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseAction {
    Nothing,
    /// Signals right after the start.
    Early,
    /// Signals when the execution waits for it.
    Late,
    /// Cancels when the execution waits for a signal.
    Cancel,
}

impl WorkflowCase {
    /// Asserts that the outcome is permitted.
    pub(crate) fn assert_outcome(&self, found: Result<&str, &str>) {
        assert!(
            self.results.contains(&found),
            "{} {}: {found:?}",
            self.function,
            self.input
        );
    }
}

const fn case(
    function: &'static str,
    input: &'static str,
    act: CaseAction,
    results: &'static [Result<&'static str, &'static str>],
) -> WorkflowCase {
    WorkflowCase {
        function,
        input,
        act,
        results,
    }
}

pub(crate) const APPROVED: &str = r#"{"approved":true}"#;

const ONCE: &str = r#"{"function":"step","input":"work","at_most_once":true}"#;

pub(crate) const CASES: [WorkflowCase; 11] = [
    case(
        "chain",
        r#"{"steps":25,"work":10}"#,
        CaseAction::Nothing,
        &[Ok("25")],
    ),
    case(
        "fan_out",
        r#"{"steps":12,"work":10}"#,
        CaseAction::Nothing,
        &[Ok("12")],
    ),
    case("parent", "5", CaseAction::Nothing, &[Ok("7")]),
    case("counter", "6", CaseAction::Nothing, &[Ok("0")]),
    case(
        "persistent",
        r#"{"count":2}"#,
        CaseAction::Nothing,
        &[Ok("3")],
    ),
    case(
        "persistent",
        r#"{"count":9}"#,
        CaseAction::Nothing,
        &[Err("flaky")],
    ),
    case("saga", r#""seat""#, CaseAction::Cancel, &[Err("cancelled")]),
    case(
        "blocking_signal",
        r#"{"order":7}"#,
        CaseAction::Late,
        &[Ok(APPROVED)],
    ),
    case(
        "buffered_signal",
        r#"{"order":7}"#,
        CaseAction::Early,
        &[Ok(APPROVED)],
    ),
    case("sleeper", "20", CaseAction::Nothing, &[Ok("null")]),
    // A kill may leave the outcome of an at-most-once task unknown.
    case(
        "call_native",
        ONCE,
        CaseAction::Nothing,
        &[Ok("4"), Err("in_doubt")],
    ),
];

/// An execution under load.
struct StartedExecution {
    id: ExecutionId,
    kind: &'static WorkflowCase,
    /// Number of events seen so far.
    events: usize,
    has_ended: bool,
    has_acted: bool,
}

/// The executions under load.
struct ExecutionLoad {
    client: EngineClient,
    started: Vec<StartedExecution>,
}

/// Kills a process whenever there was progress, and starts another in its fixture.
#[tokio::main]
async fn run_through_kills(fixture: &WorkflowStoreFixture, processes: usize, kills: usize) {
    let mut load = ExecutionLoad {
        client: client(fixture).await,
        started: Vec::new(),
    };
    load.top_up().await;
    let mut running: Vec<NodeProcess> = (0..processes)
        .map(|_| NodeProcess::start(fixture))
        .collect();
    for round in 0..kills {
        load.top_up().await;
        if round % 10 == 9 {
            load.wait_for_takeover().await;
        } else {
            load.wait_for_progress(1 + round * 7_919 % 61).await;
        }
        let victim = load.select_victim(&running, round).await;
        let process = &mut running[victim];
        assert!(process.kill(), "the process ran until it was killed");
        // Events of the killed process do not count as progress of the next one.
        load.poll().await;
        *process = NodeProcess::start(fixture);
    }
    load.wait_until_ended().await;
    drop(running);
    let (executions, takeovers) = load.assert_all_ended().await;
    println!(
        "{processes} processes, {kills} kills: {executions} executions, shards changed hands {takeovers} times"
    );
    assert_doctor_ok(fixture);
}

pub(crate) async fn client(fixture: &WorkflowStoreFixture) -> EngineClient {
    let part = || "default";
    let scope = Scope {
        tenant: part().parse().unwrap(),
        project: part().parse().unwrap(),
        environment: part().parse().unwrap(),
    };
    EngineClient::new(
        store::open_store(&fixture.url, StorePolicy::default())
            .await
            .unwrap(),
        scope,
    )
}

/// A process that runs workflows, killed on drop.
struct NodeProcess(Child);

impl NodeProcess {
    fn start(fixture: &WorkflowStoreFixture) -> Self {
        let mut command = fixture.command(&["node", "--store", &fixture.url, "--lease-ms", "200"]);
        command.env("ONWARD_CACHE", own_cache(fixture));
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Kills the process. Returns whether it was running until then.
    fn kill(&mut self) -> bool {
        self.0.kill().is_ok() && self.0.wait().is_ok_and(|status| status.code().is_none())
    }
}

/// Returns a cache folder for processes that are killed, because they may leave partial files. It
/// starts with the compiled code of the shared cache.
fn own_cache(fixture: &WorkflowStoreFixture) -> PathBuf {
    let (shared, own) = (
        std::env::temp_dir().join("onward-test-cache"),
        fixture.folder.path().join("cache"),
    );
    if !own.exists() {
        std::fs::create_dir(&own).unwrap();
        for entry in std::fs::read_dir(shared)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_file())
        {
            // An entry that disappeared was a temporary file.
            let _ = std::fs::copy(entry.path(), own.join(entry.file_name()));
        }
    }
    own
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl ExecutionLoad {
    /// Starts an execution for each one that has ended.
    async fn top_up(&mut self) {
        let open = self.started.iter().filter(|it| !it.has_ended).count();
        for _ in open..CONCURRENT_EXECUTIONS {
            let kind = &CASES[self.started.len() % CASES.len()];
            let key = format!("load {}", self.started.len());
            let input = Payload::parse(kind.input).unwrap();
            let id = self
                .client
                .start_execution(kind.function, input, Some(&key))
                .await
                .unwrap()
                .execution;
            let mut started = StartedExecution {
                id,
                kind,
                events: 1,
                has_ended: false,
                has_acted: false,
            };
            if kind.act == CaseAction::Early {
                act(&self.client, &mut started).await;
            }
            self.started.push(started);
        }
    }

    /// Polls the executions in progress. Returns the number of new events.
    async fn poll(&mut self) -> usize {
        let mut new = 0;
        for it in self.started.iter_mut().filter(|it| !it.has_ended) {
            let events = self.client.read_journal(it.id).await.unwrap();
            new += events.len() - it.events;
            it.events = events.len();
            it.has_ended = self.client.execution_result(it.id).await.unwrap().is_some();
            if !it.has_acted
                && matches!(it.kind.act, CaseAction::Late | CaseAction::Cancel)
                && waits_for_signal(&events)
            {
                act(&self.client, it).await;
            }
        }
        new
    }

    /// Waits for this many new events, or until no execution is in progress.
    async fn wait_for_progress(&mut self, events: usize) {
        let mut missing = events;
        let mut polls = PollTimer::new();
        while missing > 0 && self.started.iter().any(|it| !it.has_ended) {
            missing = missing.saturating_sub(self.poll().await);
            self.wait(&mut polls).await;
        }
    }

    /// Waits until a shard has been taken over, or for a new event: a process without shards is not
    /// taken over from.
    async fn wait_for_takeover(&mut self) {
        let epochs = self.epochs().await;
        let mut polls = PollTimer::new();
        while self.epochs().await == epochs && self.poll().await == 0 {
            self.wait(&mut polls).await;
        }
    }

    /// Selects the process to kill: an owner of a shard, and another one each time.
    async fn select_victim(&self, running: &[NodeProcess], round: usize) -> usize {
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        let owner = leases
            .get(round % leases.len().max(1))
            .map(|(lease, _)| &*lease.node);
        let fixture = running
            .iter()
            .position(|process| owner == Some(&*format!("pid {}", process.0.id())));
        fixture.unwrap_or(round % running.len())
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

    /// Waits until all executions have ended and no message is undelivered.
    async fn wait_until_ended(&mut self) {
        let mut polls = PollTimer::new();
        while self.started.iter().any(|it| !it.has_ended) || !self.messages().await.is_empty() {
            self.poll().await;
            self.wait(&mut polls).await;
        }
    }

    /// Waits for the next poll. Prints the state of all executions and panics after the timeout.
    async fn wait(&self, polls: &mut PollTimer) {
        if polls.next().await {
            return;
        }
        for it in self.started.iter().filter(|it| !it.has_ended) {
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
            "no progress; at {now}: {:?} {leases:?}",
            self.messages().await
        );
    }

    /// Messages that no execution has received. Keys of received signals remain in rows of no
    /// shard.
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

    /// Asserts that all executions have ended with a permitted outcome, child executions included.
    /// Returns their number and the number of shard takeovers.
    async fn assert_all_ended(&self) -> (usize, u64) {
        for it in &self.started {
            let result = self.client.execution_result(it.id).await.unwrap().unwrap();
            assert_result(it.kind, &result);
        }
        let (mut after, mut count) = (None, 0);
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
            count += rows.len();
            for row in rows {
                assert!(is_execution_over(&row), "{row:?}");
                assert_journal_valid(
                    row.execution_id,
                    &self.client.read_journal(row.execution_id).await.unwrap(),
                );
            }
        }
        assert!(
            count > self.started.len(),
            "some executions have started children"
        );
        (count, self.epochs().await)
    }
}

/// Paces polls and limits their total time.
struct PollTimer {
    ticks: tokio::time::Interval,
    since: Instant,
}

impl PollTimer {
    fn new() -> Self {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            since: Instant::now(),
        }
    }

    /// Waits until the next poll. Returns whether time is left.
    async fn next(&mut self) -> bool {
        self.ticks.tick().await;
        self.since.elapsed() < TIMEOUT
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

async fn act(client: &EngineClient, it: &mut StartedExecution) {
    it.has_acted = true;
    match it.kind.act {
        CaseAction::Nothing => {}
        CaseAction::Early | CaseAction::Late => {
            let (name, payload) = (
                "user_approval".parse().unwrap(),
                Payload::parse(APPROVED).unwrap(),
            );
            client
                .send_signal(it.id, name, payload, Some("once"))
                .await
                .unwrap();
        }
        CaseAction::Cancel => client.request_cancel(it.id, "enough").await.unwrap(),
    }
}

fn assert_result(kind: &WorkflowCase, result: &InvokeResult) {
    kind.assert_outcome(match result {
        Ok(payload) => Ok(payload.as_str()),
        Err(error) => Err(error.kind.as_str()),
    });
}

/// Asserts that the stored journal and its printed form are valid, and that each invocation has
/// completed once.
pub(crate) fn assert_journal_valid(id: ExecutionId, events: &[JournalEvent]) {
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
    // Cancellation abandons invocations in progress, unless the guest cleans them up.
    let is_cancelled = matches!(
        events.last().map(|it| &it.event),
        Some(Event::ExecutionCancelled { .. })
    );
    let is_complete = |count: &i32| *count == 1 || is_cancelled && *count == 0;
    assert!(ends.values().all(is_complete), "{id}: {ends:?}");
}

pub(crate) fn assert_doctor_ok(fixture: &WorkflowStoreFixture) {
    let doctor = fixture.run(&["doctor"]);
    assert_eq!(
        doctor.status.code(),
        Some(0),
        "{}{}",
        text(&doctor.stdout),
        text(&doctor.stderr)
    );
}
